"""A torch `Dataset` of clips, for your own training loop."""

import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.transforms.augment import ClipAugmentation, build_augmentation

logger = logging.getLogger(__name__)


class ClipDataset(Dataset[Tensor]):
    """Random clips of videos as float tensors (C, T, H, W).

    Each item is a new random clip, by the random numbers of torch, which `torch.manual_seed` and the `DataLoader` seed.
    The labels of the videos are in `dataset.videos.labels`.

    Args:
        videos: A folder of videos, a video file, a CSV or text list, the folder of a public data set, or a data set
            such as `VideoFolder`.
        num_frames: Number of frames of a clip, T.
        stride: Distance between frames of a clip.
        size: Height and width of a clip.
        num_clips: Number of clips of a video; items are then (num_clips, C, T, H, W). None is one clip (C, T, H, W).
        augment: Name of an augmentation ("none" is the center square; "slowfast", "vididi", "weak" or "light" are
            random), or a function from frames, uint8 (T, H, W, 3), and a random generator to a tensor (C, T, H, W).
        fps: Frame rate to which videos are resampled; 0 uses that of each video.
        strict: Raise on an unreadable video; otherwise log a warning and return a clip of a random other video.

    Raises:
        StillmotionError: If there are no videos, or an option is not valid.

    Example:
        >>> from torch.utils.data import DataLoader
        >>> from stillmotion.data import ClipDataset, SyntheticConfig, SyntheticDataset
        >>> videos = SyntheticDataset(SyntheticConfig(num_videos=4))  # or a folder: "~/videos"
        >>> dataset = ClipDataset(videos, num_frames=16, size=32)
        >>> dataset[0].shape
        torch.Size([3, 16, 32, 32])
        >>> next(iter(DataLoader(dataset, batch_size=2, shuffle=True))).shape
        torch.Size([2, 3, 16, 32, 32])
    """

    def __init__(
        self,
        videos: str | Path | VideoDataset,
        num_frames: int = 16,
        *,
        stride: int = 1,
        size: int = 112,
        num_clips: int | None = None,
        augment: str | Callable[[np.ndarray, np.random.Generator], Tensor] = "none",
        fps: float = 0.0,
        strict: bool = True,
    ) -> None:
        if isinstance(videos, str | Path):
            videos = VideoDataConfig(str(Path(videos).expanduser())).open()
        self.videos = videos
        self._one_clip = num_clips is None
        transform: ClipAugmentation | Callable[[np.ndarray, np.random.Generator], Tensor]
        transform = build_augmentation(augment, size=size) if isinstance(augment, str) else augment
        self._clips = TrainClipDataset(
            videos, num_frames, stride, num_clips or 1, augment=transform, fps=fps, strict=strict
        )

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, index: int) -> Tensor:
        if not 0 <= index < len(self):
            raise IndexError(f"index {index} is out of range 0 to {len(self) - 1}")
        random_key = int(torch.randint(2**62, ()))
        item = self._clips[random_key, int(index)]
        for _, reason in item["failed"]:
            logger.warning("Unreadable video replaced by another: %s", reason)
        clips: Tensor = item["clips"]
        return clips[0] if self._one_clip else clips
