"""What a video is, and how one is opened: a sequence of frames that are asked for by number."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from stillmotion.data.address import Source
from stillmotion.data.file_video import FileVideo
from stillmotion.data.pictures import FOLDER_FPS, FrameFolder, checked
from stillmotion.errors import StillmotionError, VideoError

# What a folder is searched for.
VIDEO_SUFFIXES = [".mp4", ".avi", ".webm", ".mkv", ".mov", ".m4v", ".mpg", ".mpeg", ".wmv", ".flv", ".ts", ".gif"]

DECODER = "STILLMOTION_DECODER"  # which library reads files, in the environment


class Video(Protocol):
    """A sequence of RGB frames that can be asked for by number.

    It may have `paced`: for each of as many even steps in time as there are frames, the number of the frame nearest to
    it. None, or nothing of the kind, is a constant rate: every step is a frame.
    It may have `promised`: how many frames there should be, where fewer can be read; else 0.
    """

    fps: float

    def __len__(self) -> int: ...

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        """The frames as uint8 (len(indices), H, W, 3), in the order asked for; numbers may repeat."""
        ...


def open_video(path: str | Path) -> Video:
    """Opens a video file or a folder of jpg/png frames; whatever is wrong with it is a VideoError."""
    path = Path(path)
    if os.path.isdir(path):
        return FrameFolder(path)
    return open_file(path)


def open_file(file: Path | Source) -> Video:
    """Opens a video file, or bytes that are one, for the decoder that the environment names, or else for PyAV."""
    chosen = os.environ.get(DECODER, "pyav")
    if chosen not in ("pyav", "torchcodec"):
        raise StillmotionError(f"{DECODER} is {chosen!r}; it is pyav or torchcodec")
    if chosen == "pyav":
        return FileVideo(file)
    from stillmotion.data.torchcodec_video import TorchcodecVideo

    return TorchcodecVideo(file)


def partly_read(video: Video) -> str:
    """What is missing of a video that can be read in part, in words; empty of a whole one."""
    promised = getattr(video, "promised", 0)
    return f"{len(video)} of {promised} frames can be read; truncated or damaged" if promised else ""


class ArrayVideo:
    """A video that is already in memory.

    array: uint8 (T, H, W, 3), RGB.
    """

    def __init__(self, array: np.ndarray, fps: float = FOLDER_FPS) -> None:
        if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or len(array) == 0:
            raise VideoError(f"array {array.dtype}{array.shape} is no video; give uint8 (T ≥ 1, H, W, 3)")
        self.array, self.fps = array, fps

    def __len__(self) -> int:
        return len(self.array)

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        return self.array[checked("array", indices, len(self))]
