"""Folders of images as videos, and the check of frame numbers that all videos share."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np

from stillmotion.errors import VideoError

DEFAULT_FPS = 30.0


def check_frame_indices(name: object, indices: Sequence[int], num_frames: int) -> np.ndarray:
    """The numbers as an array; VideoError where a video of this length and name has not all of them."""
    wanted = np.asarray(indices, dtype=np.int64)
    if wanted.size == 0:
        raise VideoError(f"{name}: no frames asked for")
    if wanted.min() < 0 or wanted.max() >= num_frames:
        outside = int(wanted.min() if wanted.min() < 0 else wanted.max())
        raise VideoError(f"{name}: frame {outside} asked for; it has frames 0 to {num_frames - 1}")
    return wanted


class VideoReader(Protocol):
    """A sequence of RGB frames that can be asked for by number.

    It may have `paced`: for each of as many even steps in time as there are frames, the number of the frame nearest to
    it. None, or nothing of the kind, is a constant rate: every step is a frame.
    It may have `promised`: how many frames there should be, where fewer can be read; else 0.
    """

    fps: float

    def __len__(self) -> int: ...

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        """The frames as uint8 (len(indices), H, W, 3), in the order asked for; numbers may repeat."""
        ...


def describe_truncation(video: VideoReader) -> str:
    """What is missing of a video that can be read in part, in words; empty of a whole one."""
    promised = getattr(video, "expected_frames", 0)
    return f"{len(video)} of {promised} frames can be read; truncated or damaged" if promised else ""


class ArrayReader:
    """A video that is already in memory.

    array: uint8 (T, H, W, 3), RGB.
    """

    def __init__(self, array: np.ndarray, fps: float = DEFAULT_FPS) -> None:
        if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or len(array) == 0:
            raise VideoError(f"array {array.dtype}{array.shape} is no video; give uint8 (T ≥ 1, H, W, 3)")
        self.array, self.fps = array, fps

    def __len__(self) -> int:
        return len(self.array)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        return self.array[check_frame_indices("array", indices, len(self))]


def to_frame_indices(video: VideoReader, steps: np.ndarray) -> np.ndarray:
    """The numbers of the frames that are nearest to these steps of the video's mean rate, from its first frame on.

    They are the steps themselves, except where the frames of a container with times lie unevenly.
    """
    paced = getattr(video, "constant_rate_indices", None)
    return steps if paced is None else paced[steps]


class FrameSubset:
    """Some frames of a video, in the order of their numbers.

    fps: at which they are counted; None is the video's own rate.
    """

    def __init__(self, video: VideoReader, indices: np.ndarray, fps: float | None = None) -> None:
        self._video, self._indices = video, indices
        self.fps = video.fps if fps is None else fps

    def __len__(self) -> int:
        return len(self._indices)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        return self._video.get_frames(self._indices[np.asarray(indices)].tolist())


def resample_fps(video: VideoReader, fps: float) -> VideoReader:
    """The video as if it had so many frames a second: each is the nearest of its own; 0 leaves it as it is."""
    if fps in (0, video.fps):
        return video
    length = max(1, round(len(video) * fps / video.fps))
    steps = np.floor(np.arange(length) * (video.fps / fps) + 0.5).astype(np.int64)
    return FrameSubset(video, to_frame_indices(video, np.minimum(steps, len(video) - 1)), fps)


def iter_frames(video: VideoReader, indices: Iterable[int]) -> Iterator[np.ndarray]:
    """The frames of ascending numbers, which may repeat, by one walk over a file; one is in memory at a time."""
    asked = [int(number) for number in indices]
    walk = getattr(video, "iter_frames", None)
    wanted = sorted(set(asked))
    images = walk(wanted) if walk is not None else (video.get_frames([number])[0] for number in wanted)
    image, last = np.empty(0), -1
    for number in asked:
        if number != last:
            image, last = next(images), number
        yield image
