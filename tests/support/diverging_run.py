"""Runs that diverge at a chosen step."""

import math

import pytest

from stillmotion.optim.optimizers import OptimConfig


def make_lr_infinite_after(monkeypatch: pytest.MonkeyPatch, *, num_steps: int) -> None:
    """Let the learning rate of every run be infinite when it has taken so many steps."""
    taken = 0

    def rate(optim: OptimConfig, epoch: float) -> float:
        nonlocal taken
        taken += 1
        return 1e-3 if taken <= num_steps else math.inf

    monkeypatch.setattr("stillmotion.training.trainer.lr_at_epoch", rate)
