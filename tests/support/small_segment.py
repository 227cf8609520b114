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
from support.class_videos import write_class_folders
from support.small_pretrain import single_thread

ACTIONS = ["SIL", "pour", "stir"]
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


def write_breakfast(root: Path, *, num_train: int = 6, num_test: int = 2) -> list[str]:
    """Write videos in Breakfast's layout, with features that encode the action; returns the names of all videos."""
    for folder in ("groundTruth", "splits", "features", "videos"):
        (root / folder).mkdir(parents=True)
    (root / "mapping.txt").write_text("".join(f"{i} {name}\n" for i, name in enumerate(ACTIONS)))
    names = [f"P{i:02}_cam01_P{i:02}_milk" for i in range(num_train + num_test)]
    class_folders = write_class_folders(
        root / "made", videos_per_class=-(-len(names) // 2), num_frames=12, image_size=32
    )
    rng = np.random.default_rng(0)
    for name, clip in zip(names, sorted(class_folders.rglob("*.mp4")), strict=False):
        labels = np.repeat([0, 1, 2, 0], [2, 5, 3, 2])
        (root / "groundTruth" / f"{name}.txt").write_text("".join(f"{ACTIONS[y]}\n" for y in labels))
        features = 3 * np.eye(5)[labels] + 0.1 * rng.standard_normal((12, 5))
        np.save(root / "features" / f"{name}.npy", features.T.astype(np.float32))
        clip.rename(root / "videos" / f"{name}.mp4")
    for split, split_names in (("train", names[:num_train]), ("test", names[num_train:])):
        (root / "splits" / f"{split}.split1.bundle").write_text(
            "#bundle\n" + "".join(f"./data/groundTruth/{n}.txt\n" for n in split_names)
        )
    return names


def random_videos(count: int = 5) -> list[LabeledFrames]:
    """Return videos of different lengths, so that the last batch of an epoch is smaller."""
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
