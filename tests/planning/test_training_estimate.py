"""The cost of a training step is linear in its videos."""

from pathlib import Path

import pytest
from support.small_finetune import small_config

from stillmotion.planning.dry_run import measure_steps, measure_training
from stillmotion.training.finetune.task import FinetuneTrainer


def test_two_small_steps_predict_flops_and_memory_of_a_full_step(tmp_path: Path) -> None:
    config = small_config(batch_size=8)
    cost, trainer = measure_training(FinetuneTrainer, config, tmp_path / "run")
    full_step = measure_steps(FinetuneTrainer(config, tmp_path / "full", trainer.device))
    assert cost.step_cost.flops == pytest.approx(full_step.flops, rel=0.01)
    assert cost.step_cost.peak_bytes == pytest.approx(full_step.peak_bytes, rel=0.15)
    assert cost.trainable_params == sum(p.numel() for p in trainer.model.parameters())
    assert not (tmp_path / "run").exists()
