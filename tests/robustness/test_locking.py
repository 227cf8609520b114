"""A run folder has one writer; a second command gets an error that names the first."""

import json
import signal
from pathlib import Path

import pytest
from support.process import Command, wait_for_steps

pytestmark = pytest.mark.slow

LONG = ("pretrain", "--recipe", "k400-simclr", "--debug", "--optim.epochs", "5000", "--train.num-threads", "1")


def test_the_second_command_on_a_run_names_the_first_and_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = Command(*LONG, "--out", str(run))
    wait_for_steps(first, run, 1)
    output = Command(*LONG, "--train.seed", "3", "--out", str(run)).expect_error()
    assert f"{run} is being written by process " in output
    assert json.loads((run / "config.json").read_text())["train"]["seed"] == 0
    first.send(signal.SIGKILL)
    first.wait()
    (run / "metrics.jsonl").unlink()
    resumed = Command(*LONG, "--out", str(run))  # the lock was released when its holder ended
    wait_for_steps(resumed, run, 1)
    resumed.send(signal.SIGTERM)
    assert resumed.wait() == 143
