"""The `VideoReader` base class, videos in memory, frame subsets and resampling to another frame rate."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import cv2
import numpy as np

from stillmotion.errors import VideoError

DEFAULT_FPS = 30.0


class VideoReader(ABC):
    """Base class of videos: a sequence of RGB frames that are read by index.

    Attributes:
        name: Path or other name of the video, for messages.
        fps: Frames per second.
        constant_rate_indices: For videos with a variable frame rate, the index of the frame nearest to each step of a
            constant-rate timeline with as many steps as frames. None for a constant rate.
        expected_frames: Number of frames that the file should have, if fewer can be read; otherwise 0.
    """

    name: str = "video"
    fps: float
    constant_rate_indices: np.ndarray | None = None
    expected_frames: int = 0

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of frames."""

    @abstractmethod
    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        """Decode frames by index.

        Args:
            indices: Frame indices, in any order; they may repeat.

        Returns:
            The frames in that order, uint8 RGB (N, H, W, 3).

        Raises:
            VideoError: If an index is out of range or a frame cannot be decoded.
        """

    def iter_frames(self, indices: Iterable[int]) -> Iterator[np.ndarray]:
        """Decode frames in one pass over the video, with one frame in memory at a time.

        Args:
            indices: Frame indices in ascending order; they may repeat.

        Yields:
            The frames, uint8 RGB (H, W, 3).

        Raises:
            VideoError: If an index is out of range or a frame cannot be decoded.
        """
        repeated = [int(index) for index in indices]
        frames = self._iter_unique(sorted(set(repeated)))
        frame, last_index = np.empty(0), -1
        for index in repeated:
            if index != last_index:
                frame, last_index = next(frames), index
            yield frame

    def iter_constant_rate(self) -> Iterator[np.ndarray]:
        """Yield the frame, uint8 RGB (H, W, 3), at each step of a constant-rate timeline."""
        indices = self.constant_rate_indices
        return self.iter_frames(range(len(self)) if indices is None else indices.tolist())

    def iter_shrunk_frames(self, side: int) -> Iterator[np.ndarray]:
        """Yield every frame, shrunk to a square, uint8 RGB (side, side, 3)."""
        for frame in self.iter_frames(range(len(self))):
            yield cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA)

    def _iter_unique(self, indices: list[int]) -> Iterator[np.ndarray]:
        return (self.get_frames([index])[0] for index in indices)


def check_frame_indices(name: object, indices: Sequence[int], num_frames: int) -> np.ndarray:
    """Convert frame indices to an array and check their range.

    Args:
        name: Name of the video, for the error.
        indices: Frame indices.
        num_frames: Length of the video.

    Returns:
        The indices, int64 (N,).

    Raises:
        VideoError: If there are no indices, or if one is out of range.
    """
    array = np.asarray(indices, dtype=np.int64)
    if array.size == 0:
        raise VideoError(f"{name}: no frame indices given")
    if array.min() < 0 or array.max() >= num_frames:
        invalid = int(array.min() if array.min() < 0 else array.max())
        raise VideoError(f"{name}: frame index {invalid} is out of range 0 to {num_frames - 1}")
    return array


def describe_truncation(video: VideoReader) -> str:
    """Describe how much of a truncated video can be read; empty for a complete one."""
    expected = video.expected_frames
    return f"{len(video)} of {expected} frames can be read; truncated or damaged" if expected else ""


class ArrayReader(VideoReader):
    """A video in memory.

    Args:
        array: Frames, uint8 RGB (T, H, W, 3).
        fps: Frames per second.
    """

    def __init__(self, array: np.ndarray, fps: float = DEFAULT_FPS) -> None:
        if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or len(array) == 0:
            raise VideoError(f"array {array.dtype}{array.shape} is not a video; give uint8 (T ≥ 1, H, W, 3)")
        self.array, self.fps = array, fps

    def __len__(self) -> int:
        return len(self.array)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        return self.array[check_frame_indices("array", indices, len(self))]


def to_frame_indices(video: VideoReader, steps: np.ndarray) -> np.ndarray:
    """Convert steps of the constant-rate timeline to the indices of the nearest frames.

    Args:
        video: The video.
        steps: Steps at the mean frame rate, integers of any shape.

    Returns:
        Frame indices of the same shape; the steps themselves for a video with a constant frame rate.
    """
    indices = video.constant_rate_indices
    return steps if indices is None else indices[steps]


class FrameSubset(VideoReader):
    """Some frames of a video.

    Args:
        video: The video.
        indices: Indices of its frames, (N,).
        fps: Frame rate of the subset; None keeps the frame rate of the video.
    """

    def __init__(self, video: VideoReader, indices: np.ndarray, fps: float | None = None) -> None:
        self._video, self._indices, self.name = video, indices, video.name
        self.fps = video.fps if fps is None else fps

    def __len__(self) -> int:
        return len(self._indices)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        return self._video.get_frames(self._indices[np.asarray(indices)].tolist())


def resample_fps(video: VideoReader, fps: float) -> VideoReader:
    """Resample a video to a frame rate by nearest frames.

    Args:
        video: The video.
        fps: Frames per second; 0 returns the video unchanged.
    """
    if fps in (0, video.fps):
        return video
    length = max(1, round(len(video) * fps / video.fps))
    steps = np.floor(np.arange(length) * (video.fps / fps) + 0.5).astype(np.int64)
    return FrameSubset(video, to_frame_indices(video, np.minimum(steps, len(video) - 1)), fps)
