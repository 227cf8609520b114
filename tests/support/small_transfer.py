"""Transfer runs of a second."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from stillmotion.methods.image_to_video import PositionAugmentConfig
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer
from support.small_pretrain import single_thread


def small_config(
    family: str = "dinov2",
    *,
    positions: PositionAugmentConfig | None = None,
    pairs: int = 0,
    epochs: int = 3,
    **optim: Any,
) -> TransferConfig:
    """Return the debug recipe reduced to three steps per epoch."""
    config = TRANSFER_RECIPES.get("dinov3-s16" if family == "dinov3" else f"{family}-b16", debug=True)
    synthetic = replace(config.data.synthetic, num_videos=6, image_size=24, num_frames=12)
    return replace(
        config,
        data=replace(config.data, image_size=24, pairs_per_video=pairs, synthetic=synthetic),
        method=replace(config.method, positions=positions or config.method.positions),
        optim=replace(config.optim, batch_size=2, epochs=epochs, **optim),
        train=replace(config.train, checkpoint_every_steps=1),
    )


def transfer_once(config: TransferConfig, output_dir: Path, **options: Any) -> Path:
    """Train on one thread; returns the folder of the run."""
    with single_thread():
        return transfer(config, output_dir, **options)
