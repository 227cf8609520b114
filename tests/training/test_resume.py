"""A run that is killed and resumed ends with the weights of an uninterrupted one."""

import os
import random
import signal
from pathlib import Path

import pytest
from support.process import Command, two_ranks, wait_for_steps
from support.run_comparison import assert_same_run
from support.small_pretrain import small_config, train

from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import lr_at_epoch
from stillmotion.training.run_log import load_metrics

pytestmark = pytest.mark.slow

# Four steps per epoch, so small that most of the time is the start of the process.
SIZE = "--data.synthetic.num-videos 32 --data.image-size 16 --data.num-frames 6 --optim.batch-size 8 --optim.epochs 4"
OFTEN = ("--train.checkpoint-every-steps", "1", "--train.num-threads", "1")
RARELY = ("--train.checkpoint-every-steps", "1000", "--train.num-threads", "1")


def arguments(recipe: str, out: Path, *more: str) -> list[str]:
    return ["pretrain", "--recipe", recipe, "--out", str(out), *SIZE.split(), *more]


@pytest.mark.parametrize("recipe", ["debug:k400-bod-moco"])
def test_kill_at_a_random_step_and_resume_give_the_same_weights(recipe, tmp_path):
    Command(*arguments(recipe, tmp_path / "whole", *OFTEN)).expect_success()
    for step in sorted(random.Random(os.getpid()).sample(range(1, 12), 2)):
        command = Command(*arguments(recipe, tmp_path / "killed", *OFTEN))
        wait_for_steps(command, tmp_path / "killed", step)
        command.send(signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL
    Command(*arguments(recipe, tmp_path / "killed", *OFTEN)).expect_success()
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_ctrl_c_saves_says_so_and_the_same_command_goes_on(tmp_path):
    more = (*RARELY, "--optim.epochs", "8")
    Command(*arguments("debug:k400-simclr", tmp_path / "whole", *more)).expect_success()
    command = Command(*arguments("debug:k400-simclr", tmp_path / "stopped", *more))
    wait_for_steps(command, tmp_path / "stopped", 3)
    command.send(signal.SIGINT)
    assert command.wait() == 130
    assert "Run the same command to resume" in command.stderr.splitlines()[-1]
    assert "Traceback" not in command.stderr
    resumed = Command(*arguments("debug:k400-simclr", tmp_path / "stopped", *more)).expect_success()
    assert "Resuming" in resumed
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_run_goes_on_with_more_epochs_from_its_step_and_not_with_fewer(tmp_path, caplog):
    short, long = small_config(), small_config(overrides={"optim.epochs": 2})
    before = load_metrics(train(short, tmp_path))
    caplog.clear()
    curves = load_metrics(train(long, tmp_path))
    assert f"Resuming {tmp_path} with changes: 2 epochs instead of 1" in caplog.text
    assert f"Resuming {tmp_path} at step 2 of 4" in caplog.text
    assert {name: curve[:2] for name, curve in curves.items()} == before
    assert curves["lr"][2:] == [(step, lr_at_epoch(long.optim, (step - 1) / 2)) for step in (3, 4)]
    state = (tmp_path / "training_state.pt").read_bytes()
    with pytest.raises(StillmotionError, match=r"optim\.epochs: 2 ≠ 1"):
        train(short, tmp_path)
    assert (tmp_path / "training_state.pt").read_bytes() == state


def test_two_ranks_resume_bit_for_bit(tmp_path):
    for rank in two_ranks(*arguments("debug:k400-bod-moco", tmp_path / "whole", *OFTEN)):
        rank.expect_success()
    ranks = two_ranks(*arguments("debug:k400-bod-moco", tmp_path / "killed", *OFTEN))
    wait_for_steps(ranks[0], tmp_path / "killed", 5)
    for rank in ranks:
        rank.send(signal.SIGKILL)
    assert ranks[0].wait() == -signal.SIGKILL
    assert ranks[1].wait() != 0  # killed, or ended because the other process was lost
    for rank in two_ranks(*arguments("debug:k400-bod-moco", tmp_path / "killed", *OFTEN)):
        rank.expect_success()
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
