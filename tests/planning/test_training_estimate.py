"""The line through two small steps leads to a whole one."""

from pathlib import Path

import pytest
from support.small_finetune import small_config

from stillmotion.planning.dry_run import _measure_steps, measure_training
from stillmotion.training.finetune.task import FinetuneTrainer


def test_two_small_steps_tell_operations_and_memory_of_a_whole_one(tmp_path: Path) -> None:
    config = small_config(batch_size=8)
    found, run = measure_training(FinetuneTrainer, config, tmp_path / "run")
    whole = _measure_steps(FinetuneTrainer(config, tmp_path / "whole", run.device))
    assert found.step_cost.flops == pytest.approx(whole.flops, rel=0.01)
    assert found.step_cost.peak_bytes == pytest.approx(whole.peak_bytes, rel=0.15)
    assert found.trainable_params == sum(p.numel() for p in run.model.parameters())
    assert not (tmp_path / "run").exists()
