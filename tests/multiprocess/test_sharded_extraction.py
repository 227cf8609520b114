"""Videos shared among two and three gloo processes, against one process that has them all."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support import gloo
from support.progress import progress_to
from support.shot_videos import write_shot_videos, write_shots

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.distributed.collectives import all_gather_uneven
from stillmotion.distributed.process_group import get_rank, get_world_size
from stillmotion.encoders import embedding_export as embedding
from stillmotion.encoders import extract_features, feature_extraction, load
from stillmotion.encoders.embedding_export import export_embeddings
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.encoders.frame_feature_cache import FrameFeatureCache
from stillmotion.encoders.sharded_extraction import extract_features_distributed, remove_blocks
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
from stillmotion.evaluation.linear_probe.streaming_classifiers import SGDProbeConfig
from stillmotion.evaluation.linear_probe.streaming_probe import run_streaming_probe
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
from stillmotion.evaluation.temporal_order.evaluate import evaluate_temporal_order
from stillmotion.index import VideoSegmentConfig, build_index, segment_embedder, segment_writer
from stillmotion.utils.files import ensure_dir

pytestmark = pytest.mark.slow

VIEWS = ClipViews(num_clips=2, average_views=True)
RECIPE = "debug:k400-bod-simclr"
CUTTING = VideoSegmentConfig(max_seconds=2, overlap_seconds=0.5)


def drawn(seed=0, videos=10):
    return SyntheticDataset(SyntheticConfig(num_videos=videos), seed=seed)


def shared(folder=None):
    found = extract_features_distributed(load(RECIPE), drawn(), VIEWS, blocks_dir=folder, key="key")
    return {name: torch.from_numpy(getattr(found, name)) for name in ("index", "whole", "static", "dynamic", "motion")}


def streamed():
    rule = SGDProbeConfig(epochs=2, warmup_epochs=1, batch_size=4)
    halves = drawn(1, 5), drawn(2, 6)
    found = run_streaming_probe(
        load(RECIPE), *halves, ClipViews(), feature_kinds=("whole", "concat"), sgd_config=rule
    ).accuracy
    return {kind: {target: tuple(result) for target, result in by.items()} for kind, by in found.items()}


def verbs(folder):
    """What verbs return and write."""
    halves = TrainTestConfig("synthetic", num_synthetic=5)
    file = folder / f"table{get_world_size()}.npz"
    export_embeddings(load(RECIPE), VideoDataConfig("synthetic"), file, num_clips=1)
    table = np.load(file)
    return {
        "probe": evaluate_linear_probe(
            load(RECIPE), halves, LinearProbeConfig(num_clips=1), feature_kinds=("whole",)
        ).to_dict(),
        "retrieve": evaluate_retrieval(
            [load(RECIPE)], halves, RetrievalConfig(num_clips=1, cache_dir=str(folder / f"cache{get_world_size()}"))
        )[RECIPE].to_dict(),
        "table": {name: torch.from_numpy(table[name]) for name in ("whole", "static", "dynamic")},
        "names": [str(name) for name in table["path"]],
    }


class Ended(Exception):
    pass


def cut_off(folder):
    """End after the first rank's first block, which is the only one."""

    def stop(done, total):
        if get_rank() or done > 4 * get_world_size():
            raise Ended

    with pytest.raises(Ended), progress_to(stop):
        shared(folder)


class Stop:
    """Progress of a command that ends at its second step; times: how often it was called."""

    def __init__(self, *, at=2):
        self.at, self.times = at, 0

    def __call__(self, done, total):
        self.times += 1
        if self.times == self.at:
            raise Ended


def indexed(folder):
    encoder, out = load("flow@frames=6,size=48"), folder / "index"
    found = build_index(folder.parent / "videos", encoder, out, segmentation=CUTTING)
    assert not list(out.glob("*.parts"))
    return [repr(moment) for moment in found.segments()], [
        found.vectors(part).tolist() for part in ("appearance", "motion")
    ]


def ordered(folder):
    return evaluate_temporal_order(
        [load(RECIPE)], TrainTestConfig("synthetic", num_synthetic=10), output_dir=folder / "order"
    ).to_dict()


def of_frames(folder):
    features = FrameFeatureCache(load(RECIPE), folder / "frames")
    features.compute_missing(drawn())
    return [features.load(drawn(), i).tolist() for i in range(10)]


KEPT = {"index": indexed, "order": ordered, "segment": of_frames}


def small_blocks():
    feature_extraction.VIDEOS_PER_BLOCK = 4
    segment_writer._COMMIT_ROWS, segment_embedder.FRAMES_PER_BATCH = 1, 12
    embedding.VideoDataConfig.open = lambda self, **_: drawn()


def on_two(of, folder):
    small_blocks()
    found = {"alone": shared(), "streamed": streamed(), **verbs(folder)}
    cut_off(folder / "parts")
    for name, work in KEPT.items():  # the index reports 0 videos first
        with pytest.raises(Ended), progress_to(Stop(at=3 if name == "index" else 2)):
            work(folder)
    counts = [2, 1]
    return found | {"rows": all_gather_uneven(torch.arange(3.0)[of * 2 : of * 2 + counts[of], None], counts)}


def on_three(of, folder):
    small_blocks()
    found = {name: work(folder) for name, work in KEPT.items()}
    return {"resumed": shared(folder / "parts"), "place": (get_rank(), get_world_size()), "kept": found}


@pytest.fixture(scope="module")
def blocks():
    patch = pytest.MonkeyPatch()
    patch.setattr(feature_extraction, "VIDEOS_PER_BLOCK", 4)
    patch.setattr(segment_writer, "_COMMIT_ROWS", 1)
    patch.setattr(segment_embedder, "FRAMES_PER_BATCH", 12)
    patch.setattr(embedding.VideoDataConfig, "open", lambda self, **_: drawn())
    yield
    patch.undo()


@pytest.fixture(scope="module")
def one(blocks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    found = extract_features(load(RECIPE), drawn(), num_clips=2, average_views=True)
    arrays = {n: torch.from_numpy(getattr(found, n)) for n in ("index", "whole", "static", "dynamic", "motion")}
    return {"alone": arrays, "streamed": streamed(), **verbs(folder)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write_shots(write_shot_videos(folder / "videos", num_videos=5) / "long.mp4", (0, 4), (1, 7))
    return ensure_dir(folder / "two")


@pytest.fixture(scope="module")
def two(folder):
    return gloo.run_on_ranks(on_two, folder)


@pytest.fixture(scope="module")
def ended(two, folder):
    """A copy of what the two processes left when they ended before their time."""
    return Path(shutil.copytree(folder, folder.parent / "ended"))


@pytest.fixture(scope="module")
def three(ended, folder):
    return gloo.run_on_ranks(on_three, folder, world_size=3)


def test_two_processes_make_the_features_of_one_bit_for_bit(one, two):
    for found in two:
        for name, value in one["alone"].items():
            assert torch.equal(found["alone"][name], value)


def test_verbs_on_two_processes_find_what_one_finds(one, two, folder):
    for found in two:
        assert found["probe"] == one["probe"]
        assert found["retrieve"] == one["retrieve"]
        assert found["names"] == one["names"]
        for name, value in one["table"].items():
            assert torch.equal(found["table"][name], value)
    assert [path.suffix for path in folder.rglob("cache2/*")] == [".safetensors"]
    assert not list(folder.glob("*.npz.blocks"))


def test_the_streamed_probe_of_two_processes_is_that_of_one(one, two):
    for found in two:
        assert found["streamed"] == one["streamed"]


def test_blocks_of_an_ended_command_are_reused_by_one_process_and_by_three(one, ended, three):
    copy = ended / "parts"
    assert len(list(copy.iterdir())) == 1
    stamps = {file.name: file.stat().st_mtime_ns for file in copy.iterdir()}
    resumed = [shared(copy), *(found["resumed"] for found in three)]
    assert stamps.items() <= {file.name: file.stat().st_mtime_ns for file in copy.iterdir()}.items()
    for found in resumed:
        for name, value in one["alone"].items():
            assert torch.equal(found[name], value)
    remove_blocks(copy, "key")
    assert not copy.exists()


@pytest.mark.parametrize("name", KEPT)
def test_what_an_ended_command_kept_is_gone_on_with_by_one_process_and_by_three(name, blocks, ended, three):
    whole, rest = Stop(at=None), Stop(at=None)
    with progress_to(whole):
        expected = KEPT[name](ensure_dir(ended.parent / "whole"))
    with progress_to(rest):
        resumed = [KEPT[name](ended), *(found["kept"][name] for found in three)]
    assert 0 < rest.times < whole.times
    for found in resumed:
        assert found == expected


def test_a_damaged_block_is_made_again(one, blocks, tmp_path):
    shared(tmp_path / "parts")
    first = min((tmp_path / "parts").iterdir())
    first.write_bytes(first.read_bytes()[:-3] + b"xyz")
    again = shared(tmp_path / "parts")
    assert torch.equal(again["whole"], one["alone"]["whole"])


def test_rows_of_ranks_that_have_different_numbers_of_them_are_joined(two):
    for found in two:
        assert found["rows"].flatten().tolist() == [0, 1, 2]
