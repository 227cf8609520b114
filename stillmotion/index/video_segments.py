"""What is found in a video: moments, which are shots and, of long shots, windows that overlap.

Shapes: n samples of a video, S×S pixels of each."""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import cv2
import numpy as np

from stillmotion.data.video.reader import VideoReader, iter_frames, to_frame_indices
from stillmotion.errors import StillmotionError

_HISTOGRAM_SIDE = 32  # pixels a side of what cuts are told by
_COLOR_LEVELS = 6  # of each colour in a histogram
_MIN_SHOT_SECONDS = 1.0  # seconds of a shot; what is shorter belongs to what follows


@dataclass(frozen=True)
class VideoSegmentConfig:
    """How videos become moments.

    Attributes:
        max_seconds: of a moment, at most; what lasts up to half as long again is left whole.
        overlap_seconds: seconds that a moment shares with the next of its shot.
        detection_fps: frames a second that are looked at for cuts, of videos that are not left whole.
        cut_threshold: share of the colours, 0 to 1, that is another where a shot ends.
    """

    max_seconds: float = 6.0
    overlap_seconds: float = 1.5
    detection_fps: float = 2.0
    cut_threshold: float = 0.4

    def __post_init__(self) -> None:
        if not self.max_seconds > 0:
            raise StillmotionError(f"seconds is {self.max_seconds}; a moment lasts longer than 0")
        if not 0 <= self.overlap_seconds <= self.max_seconds / 2:
            raise StillmotionError(
                f"overlap is {self.overlap_seconds}; it lies between 0 and half of {self.max_seconds:g} seconds"
            )
        if not self.detection_fps > 0 or not 0 < self.cut_threshold <= 1:
            raise StillmotionError(
                f"samples is {self.detection_fps} and change {self.cut_threshold}; choose above 0, and 0 to 1"
            )


@dataclass(frozen=True)
class VideoSegment:
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


class FrameRange(NamedTuple):
    """Steps of a video's mean rate, from the first up to but without the last."""

    start: int
    stop: int


def make_segment(path: str, fingerprint: str, video: VideoReader, frames: FrameRange) -> VideoSegment:
    """The moment that a span of a video is. fingerprint: of its content."""
    start, end = (round(step / video.fps, 3) for step in frames)
    told = f"{path}\n{fingerprint}\n{start:.3f} {end:.3f}".encode("utf-8", "surrogateescape")
    return VideoSegment(
        hashlib.blake2b(told, digest_size=12).hexdigest(), path, start, end, round(len(video) / video.fps, 3)
    )


def segment_video(video: VideoReader, config: VideoSegmentConfig) -> list[FrameRange]:
    """The moments of a video, in order; together they are the whole of it, but for the instants of cuts."""
    steps = len(video)
    if steps <= 1.5 * config.max_seconds * video.fps:
        return [FrameRange(0, steps)]
    return [window for shot in _detect_shots(video, config) for window in split_shot(shot, video.fps, config)]


def split_shot(shot: FrameRange, fps: float, config: VideoSegmentConfig) -> Iterator[FrameRange]:
    """Equally long windows of a shot, each with its overlap into the next."""
    length, overlap = shot.stop - shot.start, config.overlap_seconds * fps
    count = 1
    if length > 1.5 * config.max_seconds * fps:
        count = min(length, math.ceil((length - overlap) / (config.max_seconds * fps - overlap)))
    size = (length + (count - 1) * overlap) / count
    for i in range(count):
        first = min(round(shot.start + i * (size - overlap)), shot.stop - 1)
        yield FrameRange(first, max(first + 1, min(round(shot.start + i * (size - overlap) + size), shot.stop)))


def _detect_shots(video: VideoReader, cutting: VideoSegmentConfig) -> list[FrameRange]:
    """Where one picture goes on, up to the last sample before a cut and from the first behind it."""
    step = max(1.0, video.fps / cutting.detection_fps)
    numbers = np.arange(0, len(video), step).astype(np.int64)
    looks = np.stack([color_histogram(frame) for frame in iter_frames(video, to_frame_indices(video, numbers))])
    changed = np.abs(np.diff(looks, axis=0)).sum(1) / 2
    shots, first = [], 0
    for i in np.flatnonzero(changed >= cutting.cut_threshold).tolist():
        last = int(numbers[i]) + 1
        if last - first >= _MIN_SHOT_SECONDS * video.fps:
            shots.append(FrameRange(first, last))
            first = int(numbers[i + 1])
    return [*shots, FrameRange(first, len(video))]


def color_histogram(frame: np.ndarray) -> np.ndarray:
    """The share of each colour in a frame (H, W, 3), in its upper and its lower half."""
    little = cv2.resize(frame, (_HISTOGRAM_SIDE, _HISTOGRAM_SIDE), interpolation=cv2.INTER_AREA)
    levels = little.astype(np.int64) * _COLOR_LEVELS // 256
    colour = (levels[..., 0] * _COLOR_LEVELS + levels[..., 1]) * _COLOR_LEVELS + levels[..., 2]
    halves = [np.bincount(half.ravel(), minlength=_COLOR_LEVELS**3) for half in np.split(colour, 2)]
    return np.concatenate(halves) / _HISTOGRAM_SIDE**2
