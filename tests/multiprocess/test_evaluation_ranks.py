"""Verbs on two processes, as `torchrun` starts them, against one."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.class_videos import write_class_folders
from support.process import Command, two_ranks

from stillmotion.cli.verbs import VERBS, Verb
from stillmotion.index.storage.lance_tables import IndexTables

pytestmark = pytest.mark.slow

RECIPE = "debug:k400-bod-simclr"
SYNTHETIC_DATA = (
    "--data.synthetic.num-train 3 --data.synthetic.num-test 2 --data.synthetic.frames-per-action 4 6 "
    "--data.feature-stride 4 --num-workers 0"
)
HEAD = (
    "--head.hidden-dim 4 --head.num-layers 2 --head.num-stages 2 --optim.batch-size 2 --optim.epochs 2 "
    "--train.num-threads 1"
)


def table(file: Path) -> dict[str, list]:
    return {name: value.tolist() for name, value in np.load(file).items()}


def rows(folder: Path) -> list[dict]:
    tables = IndexTables.open(str(folder))
    assert tables is not None
    assert not list(folder.glob("*.blocks"))
    return sorted(tables.segments.to_arrow().to_pylist(), key=lambda row: (row["path"], row["start"]))


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


# Command of each verb, and a function that reads its output from OUT.
DISTRIBUTED_VERBS = {
    "probe": (f"probe {RECIPE} --data DATA --num-clips 1", None),
    "retrieve": (f"retrieve --encoder {RECIPE} --data DATA --num-clips 1", None),
    "embed": (f"embed {RECIPE} --data DATA --num-clips 1 --out OUT.npz", lambda out: table(out.with_suffix(".npz"))),
    "cluster": (f"cluster --encoder {RECIPE} --data DATA --num-clips 1 --features whole --out OUT", results),
    "order": (f"order --encoder {RECIPE} --data DATA --out OUT", results),
    "static-dynamic evaluate": (
        f"static-dynamic evaluate {RECIPE} --data DATA --dynamic-data DATA --num-clips 1 --n-resamples 50 --out OUT",
        results,
    ),
    "segment": (f"segment --debug --out OUT {SYNTHETIC_DATA} {HEAD}", results),
    "index": ("index DATA --encoder flow@frames=6,size=48 --out OUT", rows),
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight videos and a file that is not a video."""
    return write_class_folders(
        tmp_path_factory.mktemp("set") / "videos", videos_per_class=4, num_frames=10, image_size=32, with_broken=True
    )


def command_words(verb: str, videos: Path, out: Path) -> list[str]:
    return DISTRIBUTED_VERBS[verb][0].replace("DATA", str(videos)).replace("OUT", str(out)).split()


@pytest.mark.parametrize("verb", DISTRIBUTED_VERBS)
def test_two_processes_answer_and_write_as_one_and_once(verb: str, videos: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    single, *ranks = Command(*command_words(verb, videos, one)), *two_ranks(*command_words(verb, videos, two))
    for command in (single, *ranks):
        command.expect_success()
    assert len(single.stdout) > 20
    assert [command.stdout.replace(str(two), str(one)) for command in ranks] == [single.stdout, ""]
    output = "".join(command.stderr + command.stdout for command in ranks)
    assert output.count("cannot be decoded") == (verb != "segment")
    if (read_output := DISTRIBUTED_VERBS[verb][1]) is not None:
        assert read_output(two) == read_output(one)


MISTAKES = {
    "embed flow --data DATA/nowhere --out OUT.npz": "no such file or folder",
    "cluster --encoder nowhere --data DATA --out OUT": "Unknown encoder",
    "retrieve --encoder flow --dta DATA": "did you mean --data",
    "geometry --encoder flow --data DATA": "geometry runs in one process",
    "study still-clips --out OUT": "study still-clips runs in one process",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_of_all_processes(line: str, videos: Path, tmp_path: Path) -> None:
    words = line.replace("DATA", str(videos)).replace("OUT", str(tmp_path / "out")).split()
    ranks = two_ranks(*words)
    assert [command.wait() for command in ranks] == [2, 2]
    (error,) = [error for command in ranks for error in command.stderr.splitlines()]
    assert MISTAKES[line] in error


def test_every_verb_shares_its_work_or_refuses_to_do_it_twice() -> None:
    training = {"pretrain", "transfer", "finetune", "detect"}  # on two processes in tests/training
    copying = {"prepare", "static-dynamic make"}  # in tests/multiprocess/test_transcode_ranks.py
    single = {name for name, verb in VERBS.items() if isinstance(verb, Verb) and verb.single_process}
    assert {*DISTRIBUTED_VERBS, *training, *copying} == {*VERBS} - single
