"""Segmentation heads trained for a second on random features."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedConfig
from stillmotion.models.fact import FACTConfig
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.segment.head_trainer import LabeledFrames, SegmentHead, train_head
from stillmotion.training.segment.recipes import SEGMENT_RECIPES
from support.small_pretrain import single_thread

HEADS: dict[str, MSTCNConfig | FACTConfig] = {
    "mstcn": MSTCNConfig(num_stages=2, num_layers=2, hidden_dim=4),
    "fact": FACTConfig(num_blocks=2, num_layers=2, hidden_dim=4, num_heads=2, num_tokens=4, dropout=0.2),
}


TINY_VIDEOS = SyntheticUntrimmedConfig(
    num_train=3,
    num_test=2,
    actions_per_video=(2, 3),
    frames_per_action=(4, 6),
    appearance=SyntheticConfig(image_size=16),
)


def small_config(head: str = "mstcn", *, epochs: int = 3, **optim: Any) -> SegmentConfig:
    """The debug recipe with a tiny head: three steps an epoch."""
    config = SEGMENT_RECIPES.get("breakfast", debug=True)
    return replace(
        config,
        head=HEADS[head],
        optim=replace(config.optim, batch_size=2, epochs=epochs, **optim),
        train=replace(config.train, checkpoint_every_steps=1, log_every_steps=1),
    )


def random_videos(count: int = 5) -> list[LabeledFrames]:
    """Of different lengths, so that the last batch of an epoch is smaller."""
    rng = np.random.default_rng(0)
    videos = []
    for i in range(count):
        labels = np.repeat(rng.permutation(3), 4 + i)
        features = torch.tensor(rng.standard_normal((len(labels), 6)) + 9, dtype=torch.float32)
        videos.append(LabeledFrames(features, torch.tensor(labels)))
    return videos


def train_small_head(
    config: SegmentConfig, output_dir: Path, videos: Sequence[LabeledFrames] | None = None
) -> SegmentHead:
    with single_thread():
        return train_head(config, output_dir, torch.device("cpu"), videos or random_videos(), 3)
