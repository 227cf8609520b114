"""How videos are split into segments."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shot_videos import FPS, write_shots

from stillmotion.data.video import open_video
from stillmotion.data.video.reader import ArrayReader
from stillmotion.errors import StillmotionError
from stillmotion.index.video_segments import (
    FrameRange,
    VideoSegmentConfig,
    color_histogram,
    make_segment,
    segment_video,
    split_shot,
)


@given(st.integers(0, 500), st.integers(1, 5000), st.floats(1, 60), st.floats(0.5, 20), st.floats(0, 0.5))
def test_windows_cover_their_shot_with_overlap_and_limited_length(
    first: int, length: int, fps: float, seconds: float, share: float
) -> None:
    cutting = VideoSegmentConfig(max_seconds=seconds, overlap_seconds=share * seconds)
    result = list(split_shot(FrameRange(first, first + length), fps, cutting))
    assert result[0].start == first
    assert result[-1].stop == first + length
    assert all(one.stop > one.start for one in result)
    for one, other in itertools.pairwise(result):
        assert abs(one.stop - other.start - cutting.overlap_seconds * fps) <= 1.5  # each limit is rounded to a frame
    longest = 1.5 * seconds * fps if len(result) == 1 else max(1, seconds * fps)
    assert max(one.stop - one.start for one in result) <= longest + 1.5


def test_a_short_video_is_one_segment_and_a_cut_ends_a_shot(tmp_path: Path) -> None:
    cutting = VideoSegmentConfig(max_seconds=4, overlap_seconds=1)
    short = open_video(write_shots(tmp_path / "short.mp4", (0, 3), (1, 3)))
    assert segment_video(short, cutting) == [FrameRange(0, 60)]
    video = open_video(write_shots(tmp_path / "cut.mp4", (0, 3.3), (1, 0.3), (2, 4), (0, 9)))
    result = segment_video(video, cutting)
    inside = [(0, 33), (33, 76), (76, 166)]  # what lasts 0.3 s belongs to what follows
    shots = [next(i for i, (a, b) in enumerate(inside) if a <= span.start and span.stop <= b) for span in result]
    assert shots == [0, 1, 2, 2, 2]  # the last is cut into windows
    for a, b in inside:
        own = [span for span in result if a <= span.start < b]
        assert own[0].start - a <= FPS / cutting.detection_fps
        assert b - own[-1].stop <= FPS / cutting.detection_fps


def test_motion_and_light_are_not_cuts(tmp_path: Path) -> None:
    pixels = np.stack([np.full((32, 32, 3), 40 + t, np.uint8) for t in range(150)])
    for t in range(150):
        pixels[t, 4:12, (3 * t) % 24 : (3 * t) % 24 + 8] = 250
    assert len(segment_video(ArrayReader(pixels, 10.0), VideoSegmentConfig(max_seconds=20, overlap_seconds=0))) == 1


def test_a_histogram_counts_colors_of_upper_and_lower_rows() -> None:
    frame = np.zeros((60, 40, 3), np.uint8)
    frame[:30] = 255
    result = color_histogram(frame)
    assert result.sum() == pytest.approx(1)
    assert np.flatnonzero(result).tolist() == [6**3 - 1, 6**3]  # white above, black below
    assert np.abs(result - color_histogram(frame[::-1])).sum() / 2 == pytest.approx(1)


def test_frames_are_iterated_with_repetitions(tmp_path: Path) -> None:
    video = open_video(write_shots(tmp_path / "a.mp4", (0, 3)))
    asked = [0, 0, 3, 7, 7, 7, 20]
    np.testing.assert_array_equal(np.stack(list(video.iter_frames(asked))), video.get_frames(asked))
    array = ArrayReader(video.get_frames(range(5)))
    np.testing.assert_array_equal(np.stack(list(array.iter_frames([1, 1, 4]))), array.array[[1, 1, 4]])


def test_an_id_depends_on_path_content_and_time() -> None:
    video = ArrayReader(np.zeros((40, 8, 8, 3), np.uint8), 10.0)
    first = make_segment("a/b.mp4", "f", video, FrameRange(10, 25))
    assert (first.start, first.end, first.duration) == (1.0, 2.5, 4.0)
    assert first == make_segment("a/b.mp4", "f", video, FrameRange(10, 25))
    others = [
        ("a/c.mp4", "f", FrameRange(10, 25)),
        ("a/b.mp4", "g", FrameRange(10, 25)),
        ("a/b.mp4", "f", FrameRange(10, 26)),
    ]
    assert len({first.id, *(make_segment(path, content, video, span).id for path, content, span in others)}) == 4


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_seconds": 0.0}, "--max-seconds must be above 0, got 0"),
        ({"overlap_seconds": 4.0}, r"between 0 and half of --max-seconds \(3\), got 4"),
        ({"detection_fps": 0.0}, "--detection-fps must be above 0, got 0"),
        ({"cut_threshold": 1.5}, "--cut-threshold must be above 0 and at most 1, got 1.5"),
    ],
)
def test_invalid_settings_are_errors(settings: dict[str, float], words: str) -> None:
    with pytest.raises(StillmotionError, match=words):
        VideoSegmentConfig(**settings)
