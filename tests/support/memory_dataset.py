"""Videos in memory."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.video.reader import ArrayReader, VideoReader
from stillmotion.errors import VideoError


class MemoryDataset(VideoDataset):
    """Videos by name, as readers or as arrays at 25 frames per second; None is an unreadable video."""

    def __init__(self, videos: Mapping[str, VideoReader | np.ndarray | None]) -> None:
        self.names, self.videos = list(videos), list(videos.values())
        self.root = Path()

    def __len__(self) -> int:
        return len(self.names)

    def name(self, i: int) -> str:
        return self.names[i]

    def open_video(self, i: int) -> VideoReader:
        video = self.videos[i]
        if video is None:
            raise VideoError(f"{self.names[i]}: cannot be decoded")
        return ArrayReader(video, fps=25.0) if isinstance(video, np.ndarray) else video
