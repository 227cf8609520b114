"""Fine-tuning runs of a second."""

from dataclasses import replace
from pathlib import Path

from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.finetune.recipes import FINETUNE_RECIPES
from stillmotion.training.finetune.task import finetune
from support.small_pretrain import single_thread


def small_config(*, recipe="laptop", head=None, train=None, data=None, **optim) -> FinetuneConfig:
    """Return a debug recipe reduced to 12 steps; arguments override its fields."""
    config = FINETUNE_RECIPES.get(recipe, debug=True)
    synthetic = replace(config.data.synthetic, num_videos=16, image_size=16, num_frames=8)
    small = {
        "synthetic": synthetic,
        "videos_per_class": 0,
        "num_frames": 4,
        "frame_stride": 1,
        "image_size": 16,
        "num_test_clips": 1,
    }
    return replace(
        config,
        encoder="debug:k400-simclr",
        data=replace(config.data, **small | (data or {})),
        head=replace(config.head, **head or {}),
        optim=replace(config.optim, **{"batch_size": 4, "epochs": 3, "warmup_epochs": 0.0} | optim),
        train=replace(config.train, **{"checkpoint_every_steps": 1, "log_every_steps": 1} | (train or {})),
    )


def finetune_once(config: FinetuneConfig, output_dir: Path) -> Path:
    """Train on one thread; returns the folder of the run."""
    with single_thread():
        return finetune(config, output_dir)
