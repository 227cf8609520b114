"""Video segments: shots of a video and, for long shots, overlapping windows.

Shapes: n sampled frames of a video, S×S pixels each.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import cv2
import numpy as np

from stillmotion.data.video.reader import VideoReader, to_frame_indices
from stillmotion.errors import StillmotionError
from stillmotion.utils.hashing import hash_bytes

VectorName = Literal["appearance", "motion"]  # the two vectors that an index stores for each segment
VECTOR_NAMES: tuple[VectorName, ...] = get_args(VectorName)

_HISTOGRAM_SIDE = 32  # frames are shrunk to this many pixels a side before their colors are counted
_COLOR_LEVELS = 6  # histogram bins per color channel
_MIN_SHOT_SECONDS = 1.0  # a shorter shot is joined to the next one


@dataclass(frozen=True)
class VideoSegmentConfig:
    """How videos are split into segments.

    Attributes:
        max_seconds: Maximum segment length in seconds; a shot of up to 1.5 times this length is kept whole.
        overlap_seconds: Overlap of neighboring segments of a shot, in seconds.
        detection_fps: Frames per second examined for shot boundaries.
        cut_threshold: Fraction of the color histogram that must change at a shot boundary, 0 to 1.
    """

    max_seconds: float = 6.0
    overlap_seconds: float = 1.5
    detection_fps: float = 2.0
    cut_threshold: float = 0.4

    def __post_init__(self) -> None:
        if not self.max_seconds > 0:
            raise StillmotionError(f"--max-seconds must be above 0, got {self.max_seconds:g}")
        if not 0 <= self.overlap_seconds <= self.max_seconds / 2:
            raise StillmotionError(
                f"--overlap-seconds must be between 0 and half of --max-seconds ({self.max_seconds / 2:g}), got "
                f"{self.overlap_seconds:g}"
            )
        if not self.detection_fps > 0:
            raise StillmotionError(f"--detection-fps must be above 0, got {self.detection_fps:g}")
        if not 0 < self.cut_threshold <= 1:
            raise StillmotionError(f"--cut-threshold must be above 0 and at most 1, got {self.cut_threshold:g}")


@dataclass(frozen=True)
class VideoSegment:
    """An interval of a video.

    Attributes:
        id: Identifier; the same whenever the same content at the same path is segmented with the same settings.
        path: Path relative to the indexed folder, with / as separator; bytes that are not UTF-8 are escaped.
        start: Start in seconds.
        end: End in seconds.
        duration: Duration of the whole video in seconds.
    """

    id: str
    path: str
    start: float
    end: float
    duration: float


class FrameRange(NamedTuple):
    """Steps of a video's constant-rate timeline, from `start` up to but without `stop`."""

    start: int
    stop: int


def make_segment(path: str, fingerprint: str, video: VideoReader, frames: FrameRange) -> VideoSegment:
    """Build the segment of a range of frames.

    Args:
        path: Path of the video in the index.
        fingerprint: Fingerprint of the video's content.
        video: The video.
        frames: Range of frames.
    """
    start, end = (round(step / video.fps, 3) for step in frames)
    key = f"{path}\n{fingerprint}\n{start:.3f} {end:.3f}".encode("utf-8", "surrogateescape")
    return VideoSegment(hash_bytes(key, digest_size=12), path, start, end, round(len(video) / video.fps, 3))


def segment_video(video: VideoReader, config: VideoSegmentConfig) -> list[FrameRange]:
    """Split a video into segments at shot boundaries.

    Args:
        video: The video.
        config: Segment length, overlap and sensitivity.

    Returns:
        The ranges of the segments in order; together they cover the video except for the instants of cuts.
    """
    steps = len(video)
    if steps <= 1.5 * config.max_seconds * video.fps:
        return [FrameRange(0, steps)]
    return [window for shot in _detect_shots(video, config) for window in split_shot(shot, video.fps, config)]


def split_shot(shot: FrameRange, fps: float, config: VideoSegmentConfig) -> Iterator[FrameRange]:
    """Yield windows of equal length that overlap and cover a shot.

    Args:
        shot: Range of the shot.
        fps: Frames per second.
        config: Window length and overlap.
    """
    length, overlap = shot.stop - shot.start, config.overlap_seconds * fps
    count = 1
    if length > 1.5 * config.max_seconds * fps:
        count = min(length, math.ceil((length - overlap) / (config.max_seconds * fps - overlap)))
    size = (length + (count - 1) * overlap) / count
    for i in range(count):
        first = min(round(shot.start + i * (size - overlap)), shot.stop - 1)
        yield FrameRange(first, max(first + 1, min(round(shot.start + i * (size - overlap) + size), shot.stop)))


def _detect_shots(video: VideoReader, config: VideoSegmentConfig) -> list[FrameRange]:
    """Return the shots, each from the first sampled frame after a cut to the last one before the next."""
    step = max(1.0, video.fps / config.detection_fps)
    steps = np.arange(0, len(video), step).astype(np.int64)
    histograms = np.stack([color_histogram(frame) for frame in video.iter_frames(to_frame_indices(video, steps))])
    changes = np.abs(np.diff(histograms, axis=0)).sum(1) / 2
    shots, first = [], 0
    for i in np.flatnonzero(changes >= config.cut_threshold).tolist():
        last = int(steps[i]) + 1
        if last - first >= _MIN_SHOT_SECONDS * video.fps:
            shots.append(FrameRange(first, last))
            first = int(steps[i + 1])
    return [*shots, FrameRange(first, len(video))]


def time_range_to_frames(video: VideoReader, start: float | None, end: float | None, *, name: str) -> FrameRange:
    """Convert a time range to a range of frames at the video's mean rate.

    Args:
        video: The video.
        start: Start in seconds; None is the start of the video.
        end: End in seconds; None is the end of the video.
        name: Name of the video, for the error.

    Raises:
        StillmotionError: If the range does not lie in the video.
    """
    duration = len(video) / video.fps
    first, last = start or 0.0, duration if end is None else end
    if not 0 <= first < min(last, duration):
        raise StillmotionError(f"{name} is {duration:.2f} s long; {first:g} to {last:g} s is not a valid range")
    begin = min(int(first * video.fps), len(video) - 1)
    return FrameRange(begin, max(begin + 1, min(round(last * video.fps), len(video))))


def color_histogram(frame: np.ndarray) -> np.ndarray:
    """Compute the color histogram of the upper and of the lower half of a frame (H, W, 3); its sum is 1."""
    small = cv2.resize(frame, (_HISTOGRAM_SIDE, _HISTOGRAM_SIDE), interpolation=cv2.INTER_AREA)
    levels = small.astype(np.int64) * _COLOR_LEVELS // 256
    colors = (levels[..., 0] * _COLOR_LEVELS + levels[..., 1]) * _COLOR_LEVELS + levels[..., 2]
    counts = [np.bincount(rows.ravel(), minlength=_COLOR_LEVELS**3) for rows in np.split(colors, 2)]
    return np.concatenate(counts) / _HISTOGRAM_SIDE**2
