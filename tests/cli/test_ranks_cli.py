"""Verbs that ask frozen encoders, on two processes as `torchrun` starts them."""

import numpy as np
import pytest
from commands import Command, two_ranks
from debug_videos import write_classes

RECIPE = "debug-bod-simclr"


@pytest.mark.parametrize(
    "command",
    [("probe", RECIPE, "--clips", "1"), ("retrieve", "--encoder", RECIPE, "--clips", "1")],
    ids=lambda c: c[0],
)
def test_two_processes_answer_as_one_and_once(command, tmp_path):
    folder = write_classes(tmp_path / "set", videos=4, frames=10, size=32)
    alone, *ranks = Command(*command, "--data", str(folder)), *two_ranks(*command, "--data", str(folder))
    for one in (alone, *ranks):
        one.succeed()
    assert "whole" in alone.answer
    assert [one.answer for one in ranks] == [alone.answer, ""]


def test_two_processes_write_the_table_of_one(tmp_path):
    folder = write_classes(tmp_path / "set", videos=4, frames=10, size=32)
    files = [tmp_path / name for name in ("one.npz", "two.npz")]
    command = ("embed", RECIPE, "--data", str(folder), "--clips", "1", "--out")
    alone, *ranks = Command(*command, str(files[0])), *two_ranks(*command, str(files[1]))
    for one in (alone, *ranks):
        one.succeed()
    assert [bool(one.answer) for one in ranks] == [True, False]
    tables = [np.load(file) for file in files]
    for name in tables[0]:
        np.testing.assert_array_equal(tables[0][name], tables[1][name])
