"""Videos shared among two and three gloo processes, against one process that has them all."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import two_processes
from scenes import write_folder, write_scenes

from stillmotion.data.halves import Halves
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.videos import Videos
from stillmotion.distributed import gather_rows, rank, world
from stillmotion.encoders import extract, features, load
from stillmotion.encoders.features import Views
from stillmotion.evaluate import embed as embedding
from stillmotion.evaluate.embed import embed
from stillmotion.evaluate.frames import FrameFeatures
from stillmotion.evaluate.options import Probing, Retrieval
from stillmotion.evaluate.order import order
from stillmotion.evaluate.parts import clear, shared_features
from stillmotion.evaluate.probe import probe
from stillmotion.evaluate.retrieve import retrieve
from stillmotion.evaluate.sgd import Sgd
from stillmotion.evaluate.streamed import streamed_probe
from stillmotion.files import made
from stillmotion.index import Cutting, build, keeping, showing

VIEWS = Views(clips=2, average=True)
RECIPE = "debug-bod-simclr"
CUTTING = Cutting(seconds=2, overlap=0.5)


def drawn(seed=0, videos=10):
    return SyntheticSet(SyntheticConfig(videos=videos), seed=seed)


def shared(folder=None, progress=None):
    found = shared_features(load(RECIPE), drawn(), VIEWS, parts=folder, key="key", progress=progress)
    return {name: torch.from_numpy(getattr(found, name)) for name in ("index", "whole", "static", "dynamic", "motion")}


def streamed():
    rule = Sgd(epochs=2, warmup_epochs=1, batch=4)
    halves = drawn(1, 5), drawn(2, 6)
    found = streamed_probe(load(RECIPE), *halves, Views(), kinds=("whole", "both"), rule=rule).accuracy
    return {kind: {target: tuple(result) for target, result in by.items()} for kind, by in found.items()}


def verbs(folder):
    """What verbs return, and what they write and say."""
    halves, said = Halves("synthetic", videos=5), []
    file = embed(load(RECIPE), Videos("synthetic"), folder / f"table{world()}.npz", clips=1, say=said.append)
    table = np.load(file)
    return {
        "probe": probe(load(RECIPE), halves, Probing(clips=1), kinds=("whole",)),
        "retrieve": retrieve([load(RECIPE)], halves, Retrieval(clips=1, cache=str(folder / f"cache{world()}"))),
        "table": {name: torch.from_numpy(table[name]) for name in ("whole", "static", "dynamic")},
        "names": [str(name) for name in table["path"]],
        "said": len(said),
    }


class Ended(Exception):
    pass


def cut_off(folder):
    """End after the first rank's first block, which is the only one."""

    def stop(done, total):
        if rank() or done > 4 * world():
            raise Ended

    with pytest.raises(Ended):
        shared(folder, stop)


class Stop:
    """Progress of a command that ends at its second step; times: how often it was called."""

    def __init__(self, *, at=2):
        self.at, self.times = at, 0

    def __call__(self, done, total):
        self.times += 1
        if self.times == self.at:
            raise Ended


def indexed(folder, progress):
    encoder, out, said = load("flow@frames=6,size=48"), folder / "index", []
    found = build(folder.parent / "videos", encoder, out, cutting=CUTTING, say=said.append, progress=progress)
    assert bool(said) == (rank() == 0)
    assert not list(out.glob("*.parts"))
    return [repr(moment) for moment in found.moments()], [found.vectors(part).tolist() for part in ("look", "motion")]


def ordered(folder, progress):
    return order([load(RECIPE)], Halves("synthetic", videos=10), out=folder / "order", progress=progress)


def of_frames(folder, progress):
    features = FrameFeatures(load(RECIPE), folder / "frames")
    features.compute(drawn(), progress=progress)
    return [features.read(drawn(), i).tolist() for i in range(10)]


KEPT = {"index": indexed, "order": ordered, "segment": of_frames}


def small_blocks():
    features.BLOCK = 4
    keeping._ROWS, showing.FRAMES = 1, 12
    embedding.Videos.open = lambda self, **_: drawn()


def on_two(of, folder):
    small_blocks()
    found = {"alone": shared(), "streamed": streamed(), **verbs(folder)}
    cut_off(folder / "parts")
    for work in KEPT.values():
        with pytest.raises(Ended):
            work(folder, Stop())
    counts = [2, 1]
    return found | {"rows": gather_rows(torch.arange(3.0)[of * 2 : of * 2 + counts[of], None], counts)}


def on_three(of, folder):
    small_blocks()
    found = {name: work(folder, None) for name, work in KEPT.items()}
    return {"resumed": shared(folder / "parts"), "place": (rank(), world()), "kept": found}


@pytest.fixture(scope="module")
def blocks():
    patch = pytest.MonkeyPatch()
    patch.setattr(features, "BLOCK", 4)
    patch.setattr(keeping, "_ROWS", 1)
    patch.setattr(showing, "FRAMES", 12)
    patch.setattr(embedding.Videos, "open", lambda self, **_: drawn())
    yield
    patch.undo()


@pytest.fixture(scope="module")
def one(blocks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    found = extract(load(RECIPE), drawn(), clips=2, average=True)
    arrays = {n: torch.from_numpy(getattr(found, n)) for n in ("index", "whole", "static", "dynamic", "motion")}
    return {"alone": arrays, "streamed": streamed(), **verbs(folder)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    write_scenes(write_folder(folder / "videos", videos=5) / "long.mp4", (0, 4), (1, 7))
    return made(folder / "two")


@pytest.fixture(scope="module")
def two(folder):
    return two_processes.run(on_two, folder)


@pytest.fixture(scope="module")
def ended(two, folder):
    """A copy of what the two processes left when they ended before their time."""
    return Path(shutil.copytree(folder, folder.parent / "ended"))


@pytest.fixture(scope="module")
def three(ended, folder):
    return two_processes.run(on_three, folder, processes=3)


def test_two_processes_make_the_features_of_one_bit_for_bit(one, two):
    for found in two:
        for name, value in one["alone"].items():
            assert torch.equal(found["alone"][name], value)


def test_verbs_on_two_processes_find_what_one_finds_and_the_first_says_so(one, two, folder):
    assert [found["said"] for found in two] == [one["said"], 0]
    for found in two:
        assert found["probe"] == one["probe"]
        assert found["retrieve"] == one["retrieve"]
        assert found["names"] == one["names"]
        for name, value in one["table"].items():
            assert torch.equal(found["table"][name], value)
    assert [path.suffix for path in folder.rglob("cache2/*")] == [".safetensors"]
    assert not list(folder.glob("*.npz.parts"))


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
    clear(copy, "key")
    assert not copy.exists()


@pytest.mark.parametrize("name", KEPT)
def test_what_an_ended_command_kept_is_gone_on_with_by_one_process_and_by_three(name, blocks, ended, three):
    whole, rest = Stop(at=None), Stop(at=None)
    expected = KEPT[name](made(ended.parent / "whole"), whole)
    resumed = [KEPT[name](ended, rest), *(found["kept"][name] for found in three)]
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
