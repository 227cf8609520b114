"""Which frames make a clip, and reading several clips of a video at once."""

from collections.abc import Iterable, Sequence

import numpy as np

from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError


def random_clips(length: int, *, frames: int, stride: int, clips: int, rng: np.random.Generator) -> np.ndarray:
    """Frame numbers (clips, frames) of clips that start independently and uniformly.

    length: frames of the video. One shorter than a clip starts at 0 and repeats its last frame, as SlowFast does.
    frames, stride: a clip is `frames` frames, each `stride` after the one before; 0 takes one of each of as many equal
        parts of the video.
    """
    if stride == 0:
        return _parts(rng.random(clips), length, frames)
    last = _last_start(length, frames, stride, clips)
    return _spread(rng.integers(0, last + 1, size=clips), length, frames, stride)


def uniform_clips(length: int, *, frames: int, stride: int, clips: int) -> np.ndarray:
    """Frame numbers (clips, frames) of clips spread evenly from the first frame to the last; one is the centre.

    stride: as in `random_clips`; of 0, clips take turns with the frames of each part.
    """
    if stride == 0:
        return _parts((np.arange(clips) + 0.5) / clips, length, frames)
    last = _last_start(length, frames, stride, clips)
    starts = np.array([last / 2]) if clips == 1 else np.linspace(0, last, clips)
    return _spread(np.floor(starts + 0.5).astype(np.int64), length, frames, stride)


def in_time(video: Video, steps: np.ndarray) -> np.ndarray:
    """The numbers of the frames that are nearest to these steps of the video's mean rate, from its first frame on.

    They are the steps themselves, except where the frames of a container with times lie unevenly.
    """
    paced = getattr(video, "paced", None)
    return steps if paced is None else paced[steps]


class Excerpt:
    """Some frames of a video, in the order of their numbers.

    fps: at which they are counted; None is the video's own rate.
    """

    def __init__(self, video: Video, numbers: np.ndarray, fps: float | None = None) -> None:
        self._video, self._numbers = video, numbers
        self.fps = video.fps if fps is None else fps

    def __len__(self) -> int:
        return len(self._numbers)

    def frames(self, indices: Sequence[int]) -> np.ndarray:
        return self._video.frames(self._numbers[np.asarray(indices)].tolist())


def at_rate(video: Video, fps: float) -> Video:
    """The video as if it had so many frames a second: each is the nearest of its own; 0 leaves it as it is."""
    if fps in (0, video.fps):
        return video
    length = max(1, round(len(video) * fps / video.fps))
    steps = np.floor(np.arange(length) * (video.fps / fps) + 0.5).astype(np.int64)
    return Excerpt(video, in_time(video, np.minimum(steps, len(video) - 1)), fps)


def read_clips(video: Video, steps: np.ndarray) -> np.ndarray:
    """The frames at (K, T) steps in time, uint8 (K, T, H, W, 3); a frame that several clips share is decoded once."""
    numbers, places = np.unique(in_time(video, steps), return_inverse=True)
    return video.frames(numbers.tolist())[places.reshape(steps.shape)]


def is_short(length: int, *, frames: int, stride: int) -> bool:
    """Whether clips of a video mostly repeat its last frame."""
    return length < frames or 2 * length < (frames - 1) * stride + 1


def _spread(starts: np.ndarray, length: int, frames: int, stride: int) -> np.ndarray:
    return np.minimum(starts[:, None] + stride * np.arange(frames), length - 1)


def _parts(places: np.ndarray, length: int, frames: int) -> np.ndarray:
    """The frames (clips, frames) at these places, from 0 to 1, of equal parts of the video."""
    _last_start(length, frames, 1, len(places))
    return np.floor((np.arange(frames) + places[:, None]) * length / frames).astype(np.int64)


def _last_start(length: int, frames: int, stride: int, clips: int) -> int:
    settings: Iterable[tuple[str, int]] = {
        "length": length,
        "frames": frames,
        "stride": stride,
        "clips": clips,
    }.items()
    for name, value in settings:
        if value < 1:
            raise StillmotionError(f"{name} is {value}; a clip needs at least 1")
    return max(length - 1 - (frames - 1) * stride, 0)
