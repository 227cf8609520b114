"""The line through two small steps leads to a whole one."""

from pathlib import Path

import pytest
from small_finetuning import small

from stillmotion.tasks.cost import _taken, training
from stillmotion.tasks.finetune import Finetuning


def test_two_small_steps_tell_operations_and_memory_of_a_whole_one(tmp_path: Path) -> None:
    config = small(batch=8)
    found, run = training(Finetuning, config, tmp_path / "run")
    whole = _taken(Finetuning(config, tmp_path / "whole", run.device))
    assert found.step.flops == pytest.approx(whole.flops, rel=0.01)
    assert found.step.peak == pytest.approx(whole.peak, rel=0.15)
    assert found.trained == sum(p.numel() for p in run.method.parameters())
    assert not (tmp_path / "run").exists()
