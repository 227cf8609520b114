"""Verbs on two processes, as `torchrun` starts them, against one."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import Command, two_ranks
from debug_videos import write_classes

from stillmotion.cli import ALONE, VERBS
from stillmotion.index.table import Tables

RECIPE = "debug-bod-simclr"
DRAWN = "--data.untrimmed.videos 3 --data.untrimmed.test 2 --data.untrimmed.length 4 6 --data.hop 4 --workers 0"
HEAD = "--head.width 4 --head.layers 2 --head.stages 2 --optim.batch 2 --optim.epochs 2 --train.threads 1"


def table(file: Path) -> dict[str, list]:
    return {name: value.tolist() for name, value in np.load(file).items()}


def rows(folder: Path) -> list[dict]:
    found = Tables.open(str(folder))
    assert found is not None
    assert not list(folder.glob("*.parts"))
    return sorted(found.moments.to_arrow().to_pylist(), key=lambda row: (row["path"], row["start"]))


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


# What is typed, and what is then to be found in OUT.
SHARED = {
    "probe": (f"probe {RECIPE} --data DATA --clips 1", None),
    "retrieve": (f"retrieve --encoder {RECIPE} --data DATA --clips 1", None),
    "embed": (f"embed {RECIPE} --data DATA --clips 1 --out OUT.npz", lambda out: table(out.with_suffix(".npz"))),
    "clusters": (f"clusters --encoder {RECIPE} --data DATA --clips 1 --by whole --out OUT", results),
    "order": (f"order --encoder {RECIPE} --data DATA --out OUT", results),
    "controlled evaluate": (
        f"controlled evaluate --encoder {RECIPE} --data DATA --dynamic DATA --clips 1 --resamples 50 --out OUT",
        results,
    ),
    "segment": (f"segment --recipe debug --out OUT {DRAWN} {HEAD}", results),
    "index": ("index DATA --encoder flow@frames=6,size=48 --out OUT", rows),
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight videos, and a file that is none."""
    folder = write_classes(tmp_path_factory.mktemp("set") / "videos", videos=4, frames=10, size=32)
    (folder / "dark" / "broken.mp4").write_bytes(b"no video")
    return folder


def typed(verb: str, videos: Path, out: Path) -> list[str]:
    return SHARED[verb][0].replace("DATA", str(videos)).replace("OUT", str(out)).split()


@pytest.mark.parametrize("verb", SHARED)
def test_two_processes_answer_and_write_as_one_and_once(verb: str, videos: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone, *ranks = Command(*typed(verb, videos, one)), *two_ranks(*typed(verb, videos, two))
    for command in (alone, *ranks):
        command.succeed()
    assert len(alone.answer) > 20
    assert [command.answer.replace(str(two), str(one)) for command in ranks] == [alone.answer, ""]
    said = "".join(command.words + command.answer for command in ranks)
    assert said.count("cannot be decoded") == (verb != "segment")
    if (read := SHARED[verb][1]) is not None:
        assert read(two) == read(one)


MISTAKES = {
    "embed flow --data DATA/nowhere --out OUT.npz": "no such file or folder",
    "clusters --encoder nowhere --data DATA --out OUT": "neither a folder nor a recipe",
    "order --recipe debug --out OUT": "without torchrun",
    "retrieve --encoder flow --dta DATA": "did you mean --data",
    "geometry --encoder flow --data DATA": "geometry works in one process",
    "study still --out OUT": "study still works in one process",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_of_all_processes(line: str, videos: Path, tmp_path: Path) -> None:
    words = line.replace("DATA", str(videos)).replace("OUT", str(tmp_path / "out")).split()
    ranks = two_ranks(*words)
    assert [command.wait() for command in ranks] == [2, 2]
    (said,) = [said for command in ranks for said in command.words.splitlines()]
    assert MISTAKES[line] in said


def test_every_verb_shares_its_work_or_refuses_to_do_it_twice() -> None:
    trained = {"pretrain", "transfer", "finetune", "detect"}  # tests/tasks have these on two processes
    copied = {"prepare", "controlled make"}  # and tests/cli/test_copies_ranks_cli.py these
    assert {*SHARED, *trained, *copied, *ALONE} == {*VERBS}
    assert ALONE.isdisjoint({*SHARED, *trained, *copied})
