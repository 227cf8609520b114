"""Fine-tuning runs of a second."""

from dataclasses import replace
from pathlib import Path

from small_run import one_core

from stillmotion.config.finetune import FinetuneConfig
from stillmotion.recipes.finetune import FINETUNE
from stillmotion.tasks.finetune import finetune


def small(*, head=None, train=None, data=None, **optim) -> FinetuneConfig:
    """The debug recipe at its smallest: 12 steps; arguments change what they name."""
    config = FINETUNE.named("debug")
    synthetic = replace(config.data.synthetic, videos=16, size=16, length=8)
    shown = {"synthetic": synthetic, "per_class": 0, "frames": 4, "stride": 1, "size": 16, "test_clips": 1}
    return replace(
        config,
        encoder="debug-simclr",
        data=replace(config.data, **shown | (data or {})),
        head=replace(config.head, **head or {}),
        optim=replace(config.optim, **{"batch": 4, "epochs": 3, "warmup_epochs": 0.0} | optim),
        train=replace(config.train, **{"checkpoint_every": 1, "log_every": 1} | (train or {})),
    )


def tuned(config: FinetuneConfig, folder: Path) -> Path:
    """The folder of the finished run, trained on one core."""
    with one_core():
        return finetune(config, folder)
