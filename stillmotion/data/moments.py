"""What is found in a video: moments, which are shots and, of long shots, windows that overlap.

Shapes: n samples of a video, S×S pixels of each.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from stillmotion.data.clips import in_time
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError

_SIDE = 32  # pixels a side of what cuts are told by
_LEVELS = 6  # of each colour in a histogram
_SHORTEST = 1.0  # seconds of a shot; what is shorter belongs to what follows


@dataclass(frozen=True)
class Cutting:
    """How videos become moments.

    Attributes:
        seconds: of a moment, at most; what lasts up to half as long again is left whole.
        overlap: seconds that a moment shares with the next of its shot.
        samples: frames a second that are looked at for cuts, of videos that are not left whole.
        change: share of the colours, 0 to 1, that is another where a shot ends.
    """

    seconds: float = 6.0
    overlap: float = 1.5
    samples: float = 2.0
    change: float = 0.4

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise StillmotionError(f"seconds is {self.seconds}; a moment lasts longer than 0")
        if not 0 <= self.overlap <= self.seconds / 2:
            raise StillmotionError(f"overlap is {self.overlap}; it lies between 0 and half of {self.seconds:g} seconds")
        if not self.samples > 0 or not 0 < self.change <= 1:
            raise StillmotionError(f"samples is {self.samples} and change {self.change}; choose above 0, and 0 to 1")


@dataclass(frozen=True)
class Moment:
    """A part of a video.

    id: the same whenever the same content at the same path is cut in the same way. path: relative to the folder that
    was indexed, with / between its parts; what is not UTF-8 in it has escapes.
    start, end: in the video; duration: of the whole video; all in seconds.
    """

    id: str
    path: str
    start: float
    end: float
    duration: float


class Span(NamedTuple):
    """Steps of a video's mean rate, from the first up to but without the last."""

    first: int
    last: int


def moment(path: str, fingerprint: str, video: Video, span: Span) -> Moment:
    """The moment that a span of a video is. fingerprint: of its content."""
    start, end = (round(step / video.fps, 3) for step in span)
    told = f"{path}\n{fingerprint}\n{start:.3f} {end:.3f}".encode("utf-8", "surrogateescape")
    return Moment(hashlib.blake2b(told, digest_size=12).hexdigest(), path, start, end, round(len(video) / video.fps, 3))


def spans(video: Video, cutting: Cutting) -> list[Span]:
    """The moments of a video, in order; together they are the whole of it, but for the instants of cuts."""
    steps = len(video)
    if steps <= 1.5 * cutting.seconds * video.fps:
        return [Span(0, steps)]
    return [window for shot in _shots(video, cutting) for window in windows(shot, video.fps, cutting)]


def windows(shot: Span, fps: float, cutting: Cutting) -> Iterator[Span]:
    """Equally long windows of a shot, each with its overlap into the next."""
    length, overlap = shot.last - shot.first, cutting.overlap * fps
    count = 1
    if length > 1.5 * cutting.seconds * fps:
        count = min(length, math.ceil((length - overlap) / (cutting.seconds * fps - overlap)))
    size = (length + (count - 1) * overlap) / count
    for i in range(count):
        first = min(round(shot.first + i * (size - overlap)), shot.last - 1)
        yield Span(first, max(first + 1, min(round(shot.first + i * (size - overlap) + size), shot.last)))


def _shots(video: Video, cutting: Cutting) -> list[Span]:
    """Where one picture goes on, up to the last sample before a cut and from the first behind it."""
    step = max(1.0, video.fps / cutting.samples)
    numbers = np.arange(0, len(video), step).astype(np.int64)
    looks = np.stack([histogram(frame) for frame in each(video, in_time(video, numbers))])
    changed = np.abs(np.diff(looks, axis=0)).sum(1) / 2
    shots, first = [], 0
    for i in np.flatnonzero(changed >= cutting.change).tolist():
        last = int(numbers[i]) + 1
        if last - first >= _SHORTEST * video.fps:
            shots.append(Span(first, last))
            first = int(numbers[i + 1])
    return [*shots, Span(first, len(video))]


def histogram(frame: np.ndarray) -> np.ndarray:
    """The share of each colour in a frame (H, W, 3), in its upper and its lower half."""
    little = cv2.resize(frame, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    levels = little.astype(np.int64) * _LEVELS // 256
    colour = (levels[..., 0] * _LEVELS + levels[..., 1]) * _LEVELS + levels[..., 2]
    halves = [np.bincount(half.ravel(), minlength=_LEVELS**3) for half in np.split(colour, 2)]
    return np.concatenate(halves) / _SIDE**2


def each(video: Video, numbers: Iterable[int]) -> Iterator[np.ndarray]:
    """The frames of ascending numbers, which may repeat, by one walk over a file; one is in memory at a time."""
    asked = [int(number) for number in numbers]
    walk = getattr(video, "each", None)
    wanted = sorted(set(asked))
    images = walk(wanted) if walk is not None else (video.frames([number])[0] for number in wanted)
    image, last = np.empty(0), -1
    for number in asked:
        if number != last:
            image, last = next(images), number
        yield image
