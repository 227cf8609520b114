"""Runs that diverge at a chosen step."""

import math

import pytest

from stillmotion.optim.optimizers import OptimConfig


def explode(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Let the learning rate of every run be infinite when it has taken so many steps."""
    taken = 0

    def rate(optim: OptimConfig, epoch: float) -> float:
        nonlocal taken
        taken += 1
        return 1e-3 if taken <= after else math.inf

    monkeypatch.setattr("stillmotion.train.run.learning_rate", rate)
