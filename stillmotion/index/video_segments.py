"""Video segments: shots of a video and, for long shots, overlapping windows.

Shapes: frames of H×W pixels.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import cv2
import numpy as np

from stillmotion.data.video.reader import VideoReader
from stillmotion.errors import StillmotionError
from stillmotion.utils.hashing import hash_bytes

VectorName = Literal["appearance", "motion"]  # the two vectors that an index stores for each segment
VECTOR_NAMES: tuple[VectorName, ...] = get_args(VectorName)

_FRAME_SIDE = 32  # frames are shrunk to so many pixels a side before their colors are counted
_COLOR_LEVELS = 6  # histogram bins per color channel
_CUT_RATIO = 8.0  # change at a shot boundary, relative to the mean change of the frames around it
_CUT_NEIGHBORS = 4  # frames on each side whose change a shot boundary is compared with
_FULL_PIXEL_CHANGE = 255 / 5  # mean change of the pixels at which the histogram counts in full


@dataclass(frozen=True)
class VideoSegmentConfig:
    """How videos are split into segments.

    Attributes:
        max_seconds: Maximum segment length in seconds; a shot of up to 1.5 times this length is kept whole.
        overlap_seconds: Overlap of neighboring segments of a shot, in seconds.
        cut_threshold: Fraction of the color histogram that must change between two frames at a shot boundary, 0 to 1.
    """

    max_seconds: float = 6.0
    overlap_seconds: float = 1.5
    cut_threshold: float = 0.2

    def __post_init__(self) -> None:
        if not self.max_seconds > 0:
            raise StillmotionError(f"--max-seconds must be above 0, got {self.max_seconds:g}")
        if not 0 <= self.overlap_seconds <= self.max_seconds / 2:
            raise StillmotionError(
                f"--overlap-seconds must be between 0 and half of --max-seconds ({self.max_seconds / 2:g}), got "
                f"{self.overlap_seconds:g}"
            )
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
    """Split a video into segments; none extends over a shot boundary.

    Args:
        video: The video.
        config: Segment length, overlap and sensitivity.

    Returns:
        The ranges of the segments in order; together they cover the video.
    """
    limits = [0, *detect_cuts(video, config.cut_threshold), len(video)]
    shots = [FrameRange(*limits) for limits in itertools.pairwise(limits)]
    return [window for shot in shots for window in split_shot(shot, video.fps, config)]


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


def detect_cuts(video: VideoReader, threshold: float) -> list[int]:
    """Detect shot boundaries in one pass over all frames.

    Two frames lie on both sides of a boundary if their color histograms differ by at least the threshold and by eight
    times as much as the pairs of frames around them do. Motion of the camera and flickering light change many pairs in
    a row, a flash two.

    Args:
        video: The video.
        threshold: Fraction of the histogram that must change, 0 to 1.

    Returns:
        The first step of each shot but the first on the constant-rate timeline, ascending.
    """
    if len(video) < 2:
        return []
    frames = ((frame, color_histogram(frame)) for frame in video.iter_shrunk_frames(_FRAME_SIDE))
    changes = np.array([_frame_change(*before, *after) for before, after in itertools.pairwise(frames)])
    window = np.ones(2 * _CUT_NEIGHBORS + 1)
    sums, counts = (np.convolve(values, window)[_CUT_NEIGHBORS:-_CUT_NEIGHBORS] for values in (changes, changes >= 0))
    means = (sums - changes) / np.maximum(counts - 1, 1)
    cuts = 1 + np.flatnonzero((changes >= threshold) & (changes > _CUT_RATIO * means))
    steps = cuts if video.constant_rate_indices is None else np.searchsorted(video.constant_rate_indices, cuts)
    return sorted(set(steps.tolist()) - {0, len(video)})


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


def _frame_change(before: np.ndarray, colors_before: np.ndarray, after: np.ndarray, colors_after: np.ndarray) -> float:
    """Return the fraction of the color histogram that changes from a frame to the next, bounded by the pixels' change.

    In a plain area, a small change of light can move all pixels to the next bin of the histogram.
    """
    pixels = cv2.absdiff(before, after).mean() / _FULL_PIXEL_CHANGE
    return float(min(pixels, np.abs(colors_after - colors_before).sum() / 2))


def color_histogram(frame: np.ndarray) -> np.ndarray:
    """Compute the color histogram of the upper and of the lower half of a frame (H, W, 3); its sum is 1."""
    bins, limits = [_COLOR_LEVELS] * 3, [0, 256] * 3
    counts = [cv2.calcHist([rows], [0, 1, 2], None, bins, limits).ravel() for rows in np.array_split(frame, 2)]
    return np.concatenate(counts) / frame[..., 0].size
