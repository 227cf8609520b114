"""Runs that diverge at a chosen step."""

import math

import pytest

from stillmotion.optim.optimizers import OptimConfig


def make_lr_infinite_after(monkeypatch: pytest.MonkeyPatch, *, num_steps: int) -> None:
    """Make the learning rate of every run infinite after `num_steps` steps."""
    steps_done = 0

    def rate(optim: OptimConfig, epoch: float) -> float:
        nonlocal steps_done
        steps_done += 1
        return 1e-3 if steps_done <= num_steps else math.inf

    monkeypatch.setattr("stillmotion.training.trainer.lr_at_epoch", rate)
