"""A run that was killed and started again ends with the weights of one that was not."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stillmotion.train.log import read_metrics

LENGTH = ("--optim.epochs", "4", "--train.checkpoint-every", "1", "--train.threads", "1")


def command(recipe: str, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "stillmotion", "pretrain", "--recipe", recipe, "--out", str(out), *LENGTH, *more]


def steps_written(out: Path) -> int:
    file = out / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def wait_for_steps(process: subprocess.Popen, out: Path, steps: int) -> None:
    deadline = time.monotonic() + 120
    while steps_written(out) < steps:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.01)


def start(arguments: list[str]) -> subprocess.Popen:
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def assert_same_run(a: Path, b: Path) -> None:
    left, right = load_file(a / "checkpoint.safetensors"), load_file(b / "checkpoint.safetensors")
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name
    assert read_metrics(a) == read_metrics(b)


@pytest.mark.parametrize("recipe", ["debug-bod-moco"])
def test_kill_at_a_random_step_and_resume_give_the_same_weights(recipe, tmp_path):
    subprocess.run(command(recipe, tmp_path / "whole"), check=True, capture_output=True)
    for step in sorted(random.Random(os.getpid()).sample(range(1, 15), 2)):
        process = start(command(recipe, tmp_path / "killed"))
        wait_for_steps(process, tmp_path / "killed", step)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    subprocess.run(command(recipe, tmp_path / "killed"), check=True, capture_output=True)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_ctrl_c_saves_says_so_and_the_same_command_goes_on(tmp_path):
    rarely = ("--train.checkpoint-every", "1000")
    subprocess.run(command("debug-simclr", tmp_path / "whole", *rarely), check=True, capture_output=True)
    process = start(command("debug-simclr", tmp_path / "stopped", *rarely))
    wait_for_steps(process, tmp_path / "stopped", 5)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate()
    assert process.returncode == 130
    assert "the same command resumes it" in words.splitlines()[-1]
    assert "Traceback" not in words
    again = subprocess.run(
        command("debug-simclr", tmp_path / "stopped", *rarely), check=True, capture_output=True, text=True
    )
    assert "resuming" in again.stderr
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_two_ranks_resume_bit_for_bit(tmp_path):
    def torchrun(out: Path, epochs: int) -> None:
        arguments = command("debug-bod-moco", out)
        arguments[arguments.index("--optim.epochs") + 1] = "3"
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        run = subprocess.Popen([*launch, *arguments[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if epochs < 3:
            wait_for_steps(run, out, 4 * epochs)
            run.send_signal(signal.SIGKILL)
            subprocess.run(["pkill", "-9", "-f", str(out)], check=False)
        _, words = run.communicate()
        assert epochs < 3 or run.returncode == 0, words

    torchrun(tmp_path / "whole", 3)
    torchrun(tmp_path / "killed", 1)
    torchrun(tmp_path / "killed", 3)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_a_folder_with_another_run_is_refused(tmp_path):
    short = ("--optim.epochs", "1")
    subprocess.run(command("debug-simclr", tmp_path, *short), check=True, capture_output=True)
    other = subprocess.run(
        command("debug-simclr", tmp_path, *short, "--optim.lr", "0.5"), capture_output=True, text=True
    )
    assert other.returncode == 2
    assert "optim.lr: 1.2 ≠ 0.5" in other.stderr
    assert len(other.stderr.splitlines()) == 1


def test_a_finished_run_is_left_as_it_is(tmp_path):
    short = ("--optim.epochs", "1")
    subprocess.run(command("debug-simclr", tmp_path, *short), check=True, capture_output=True)
    before = (tmp_path / "state.pt").read_bytes()
    subprocess.run(command("debug-simclr", tmp_path, *short), check=True, capture_output=True)
    assert (tmp_path / "state.pt").read_bytes() == before
    assert json.loads((tmp_path / "config.json").read_text())["recipe"] == "debug-simclr"
