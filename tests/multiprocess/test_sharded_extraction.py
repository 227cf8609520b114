"""Videos that are distributed over two and three gloo processes, against one process."""

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
SEGMENTATION = VideoSegmentConfig(max_seconds=2, overlap_seconds=0.5)


def synthetic_videos(seed=0, videos=10):
    return SyntheticDataset(SyntheticConfig(num_videos=videos), seed=seed)


def extract_arrays(folder=None):
    features = extract_features_distributed(load(RECIPE), synthetic_videos(), VIEWS, blocks_dir=folder, key="key")
    return {
        name: torch.from_numpy(getattr(features, name)) for name in ("index", "whole", "static", "dynamic", "motion")
    }


def probe_accuracy():
    sgd_config = SGDProbeConfig(epochs=2, warmup_epochs=1, batch_size=4)
    splits = synthetic_videos(1, 5), synthetic_videos(2, 6)
    accuracy = run_streaming_probe(
        load(RECIPE), *splits, ClipViews(), feature_kinds=("whole", "concat"), sgd_config=sgd_config
    ).accuracy
    return {
        kind: {target: tuple(result) for target, result in by_target.items()} for kind, by_target in accuracy.items()
    }


def run_verbs(folder):
    """Run verbs; returns their results and the files that they write."""
    split_config = TrainTestConfig("synthetic", num_synthetic=5)
    file = folder / f"table{get_world_size()}.npz"
    export_embeddings(load(RECIPE), VideoDataConfig("synthetic"), file, num_clips=1)
    table = np.load(file)
    return {
        "probe": evaluate_linear_probe(
            load(RECIPE), split_config, LinearProbeConfig(num_clips=1), feature_kinds=("whole",)
        ).to_dict(),
        "retrieve": evaluate_retrieval(
            [load(RECIPE)],
            split_config,
            RetrievalConfig(num_clips=1, cache_dir=str(folder / f"cache{get_world_size()}")),
        )[RECIPE].to_dict(),
        "table": {name: torch.from_numpy(table[name]) for name in ("whole", "static", "dynamic")},
        "names": [str(name) for name in table["path"]],
    }


class StoppedEarly(Exception):
    pass


def stop_after_one_block(folder):
    """Stop extraction after the first block of rank 0, the only one that is written."""

    def stop(done, total):
        if get_rank() or done > 4 * get_world_size():
            raise StoppedEarly

    with pytest.raises(StoppedEarly), progress_to(stop):
        extract_arrays(folder)


class Stop:
    """Progress callback that raises at a given call.

    Attributes:
        at: Number of the call that raises; None: none does.
        times: Number of calls so far.
    """

    def __init__(self, *, at=2):
        self.at, self.times = at, 0

    def __call__(self, done, total):
        self.times += 1
        if self.times == self.at:
            raise StoppedEarly


def build_small_index(folder):
    encoder, out = load("flow@frames=6,size=48"), folder / "index"
    index = build_index(folder.parent / "videos", encoder, out, segmentation=SEGMENTATION)
    assert not list(out.glob("*.parts"))
    return [repr(segment) for segment in index.segments()], [
        index.vectors(part).tolist() for part in ("appearance", "motion")
    ]


def order_results(folder):
    return evaluate_temporal_order(
        [load(RECIPE)], TrainTestConfig("synthetic", num_synthetic=10), output_dir=folder / "order"
    ).to_dict()


def frame_features(folder):
    features = FrameFeatureCache(load(RECIPE), folder / "frames")
    features.compute_missing(synthetic_videos())
    return [features.load(synthetic_videos(), i).tolist() for i in range(10)]


RESUMABLE = {"index": build_small_index, "order": order_results, "segment": frame_features}


def small_blocks():
    feature_extraction.VIDEOS_PER_BLOCK = 4
    segment_writer._COMMIT_ROWS, segment_embedder.FRAMES_PER_BATCH = 1, 12
    embedding.VideoDataConfig.open = lambda self, **_: synthetic_videos()


def run_on_two(rank, folder):
    small_blocks()
    outputs = {"alone": extract_arrays(), "streamed": probe_accuracy(), **run_verbs(folder)}
    stop_after_one_block(folder / "parts")
    for name, work in RESUMABLE.items():  # the index reports 0 videos first
        with pytest.raises(StoppedEarly), progress_to(Stop(at=3 if name == "index" else 2)):
            work(folder)
    counts = [2, 1]
    return outputs | {"rows": all_gather_uneven(torch.arange(3.0)[rank * 2 : rank * 2 + counts[rank], None], counts)}


def run_on_three(rank, folder):
    small_blocks()
    outputs = {name: work(folder) for name, work in RESUMABLE.items()}
    return {"resumed": extract_arrays(folder / "parts"), "place": (get_rank(), get_world_size()), "kept": outputs}


@pytest.fixture(scope="module")
def blocks():
    patch = pytest.MonkeyPatch()
    patch.setattr(feature_extraction, "VIDEOS_PER_BLOCK", 4)
    patch.setattr(segment_writer, "_COMMIT_ROWS", 1)
    patch.setattr(segment_embedder, "FRAMES_PER_BATCH", 12)
    patch.setattr(embedding.VideoDataConfig, "open", lambda self, **_: synthetic_videos())
    yield
    patch.undo()


@pytest.fixture(scope="module")
def single_process(blocks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    features = extract_features(load(RECIPE), synthetic_videos(), num_clips=2, average_views=True)
    arrays = {n: torch.from_numpy(getattr(features, n)) for n in ("index", "whole", "static", "dynamic", "motion")}
    return {"alone": arrays, "streamed": probe_accuracy(), **run_verbs(folder)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write_shots(write_shot_videos(folder / "videos", num_videos=5) / "long.mp4", (0, 4), (1, 7))
    return ensure_dir(folder / "two")


@pytest.fixture(scope="module")
def two_ranks(folder):
    return gloo.run_on_ranks(run_on_two, folder)


@pytest.fixture(scope="module")
def ended_folder(two_ranks, folder):
    """A copy of the folder that the two processes left when they were stopped."""
    return Path(shutil.copytree(folder, folder.parent / "ended"))


@pytest.fixture(scope="module")
def three_ranks(ended_folder, folder):
    return gloo.run_on_ranks(run_on_three, folder, world_size=3)


def test_two_processes_make_the_features_of_one_bit_for_bit(single_process, two_ranks):
    for outputs in two_ranks:
        for name, value in single_process["alone"].items():
            assert torch.equal(outputs["alone"][name], value)


def test_verbs_on_two_processes_find_what_one_finds(single_process, two_ranks, folder):
    for outputs in two_ranks:
        assert outputs["probe"] == single_process["probe"]
        assert outputs["retrieve"] == single_process["retrieve"]
        assert outputs["names"] == single_process["names"]
        for name, value in single_process["table"].items():
            assert torch.equal(outputs["table"][name], value)
    assert [path.suffix for path in folder.rglob("cache2/*")] == [".safetensors"]
    assert not list(folder.glob("*.npz.blocks"))


def test_the_streamed_probe_of_two_processes_is_that_of_one(single_process, two_ranks):
    for outputs in two_ranks:
        assert outputs["streamed"] == single_process["streamed"]


def test_blocks_of_an_ended_command_are_reused_by_one_process_and_by_three(single_process, ended_folder, three_ranks):
    copy = ended_folder / "parts"
    assert len(list(copy.iterdir())) == 1
    stamps = {file.name: file.stat().st_mtime_ns for file in copy.iterdir()}
    resumed = [extract_arrays(copy), *(outputs["resumed"] for outputs in three_ranks)]
    assert stamps.items() <= {file.name: file.stat().st_mtime_ns for file in copy.iterdir()}.items()
    for arrays in resumed:
        for name, value in single_process["alone"].items():
            assert torch.equal(arrays[name], value)
    remove_blocks(copy, "key")
    assert not copy.exists()


@pytest.mark.parametrize("name", RESUMABLE)
def test_results_of_an_interrupted_command_are_continued_by_one_process_and_by_three(
    name, blocks, ended_folder, three_ranks
):
    full, remaining = Stop(at=None), Stop(at=None)
    with progress_to(full):
        expected = RESUMABLE[name](ensure_dir(ended_folder.parent / "whole"))
    with progress_to(remaining):
        resumed = [RESUMABLE[name](ended_folder), *(outputs["kept"][name] for outputs in three_ranks)]
    assert 0 < remaining.times < full.times
    for result in resumed:
        assert result == expected


def test_a_damaged_block_is_made_again(single_process, blocks, tmp_path):
    extract_arrays(tmp_path / "parts")
    first = min((tmp_path / "parts").iterdir())
    first.write_bytes(first.read_bytes()[:-3] + b"xyz")
    arrays = extract_arrays(tmp_path / "parts")
    assert torch.equal(arrays["whole"], single_process["alone"]["whole"])


def test_rows_of_ranks_that_have_different_numbers_of_them_are_joined(two_ranks):
    for outputs in two_ranks:
        assert outputs["rows"].flatten().tolist() == [0, 1, 2]
