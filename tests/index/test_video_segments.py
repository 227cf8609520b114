"""How videos are split into segments."""

import itertools
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shot_videos import write_shots

from stillmotion.data.video import open_video, pyav_reader
from stillmotion.data.video.reader import ArrayReader, VideoReader
from stillmotion.data.video.writer import write_mp4
from stillmotion.errors import StillmotionError
from stillmotion.index.video_segments import (
    FrameRange,
    VideoSegmentConfig,
    color_histogram,
    detect_cuts,
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
    assert all(segment.stop > segment.start for segment in result)
    for segment, following in itertools.pairwise(result):
        # Each limit is rounded to a frame.
        assert abs(segment.stop - following.start - cutting.overlap_seconds * fps) <= 1.5
    longest = 1.5 * seconds * fps if len(result) == 1 else max(1, seconds * fps)
    assert max(segment.stop - segment.start for segment in result) <= longest + 1.5


def test_every_shot_is_split_from_its_neighbors_to_the_frame(tmp_path: Path) -> None:
    cutting = VideoSegmentConfig(max_seconds=4, overlap_seconds=1)
    short = open_video(write_shots(tmp_path / "short.mp4", (0, 3), (1, 0.7), (2, 1)))
    assert segment_video(short, cutting) == [FrameRange(0, 30), FrameRange(30, 37), FrameRange(37, 47)]
    result = segment_video(open_video(write_shots(tmp_path / "cut.mp4", (0, 3.3), (2, 4), (0, 9))), cutting)
    assert result[:2] == [FrameRange(0, 33), FrameRange(33, 73)]
    assert len(result) == 5  # the last shot is split into windows
    assert (result[2].start, result[4].stop) == (73, 163)
    assert segment_video(ArrayReader(np.zeros((1, 8, 8, 3), np.uint8)), cutting) == [FrameRange(0, 1)]


def _draw_shot(rng: np.random.Generator, num_frames: int) -> np.ndarray:
    """Write blurred noise under a panning camera and changing light, with a moving square."""
    texture = rng.uniform(30, 200, 3) + rng.uniform(-60, 60, (8, 14, 3))
    scenery = cv2.resize(texture, (160, 64), interpolation=cv2.INTER_LINEAR)
    pan, light, speed = rng.uniform(0, 1.5), rng.uniform(-0.3, 0.3), rng.uniform(1, 6)
    frames = np.empty((num_frames, 64, 64, 3), np.uint8)
    for t in range(num_frames):
        x = round(48 * abs((pan * t / 48 + 1) % 2 - 1))
        noise = rng.normal(0, 2, (64, 64, 3))
        frames[t] = (scenery[:, x : x + 64] * (1 + light * np.sin(t / 20)) + noise).clip(0, 255)
        y = round(speed * t) % 50
        frames[t, y : y + 14, 20:34] = 250
    return frames


def test_cuts_of_drawn_videos_are_detected(tmp_path: Path) -> None:
    num_right = num_detected = num_cuts = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        shots = [_draw_shot(rng, int(rng.integers(8, 90))) for _ in range(8)]
        cuts = np.cumsum([len(shot) for shot in shots])[:-1].tolist()
        frames = np.concatenate(shots)
        file = tmp_path / f"{seed}.mp4"
        write_mp4(file, list(frames), size=(64, 64), fps=25, gop_size=50, crf=23)
        detected = detect_cuts(open_video(file), VideoSegmentConfig().cut_threshold)
        num_right += len(set(cuts) & set(detected))
        num_detected, num_cuts = num_detected + len(detected), num_cuts + len(cuts)
    assert 2 * num_right / (num_detected + num_cuts) >= 0.95


def test_a_flash_is_not_a_cut() -> None:
    frames = _draw_shot(np.random.default_rng(0), 60)
    frames[30] = 255
    assert detect_cuts(ArrayReader(frames), 0.2) == []


def test_cuts_of_a_variable_frame_rate_are_steps_of_the_constant_rate() -> None:
    frames = np.zeros((40, 16, 16, 3), np.uint8)
    frames[10:] = 200
    video = ArrayReader(frames)
    assert detect_cuts(video, 0.2) == [10]
    video.constant_rate_indices = np.minimum(np.arange(40) // 2, 39)  # the first half of the frames lasts twice as long
    assert detect_cuts(video, 0.2) == [20]


def test_motion_and_light_are_not_cuts(tmp_path: Path) -> None:
    pixels = np.stack([np.full((32, 32, 3), 40 + t, np.uint8) for t in range(150)])
    for t in range(150):
        x = abs((2 * t + 24) % 48 - 24)
        pixels[t, 4:12, x : x + 8] = 250
    assert len(segment_video(ArrayReader(pixels, 10.0), VideoSegmentConfig(max_seconds=20, overlap_seconds=0))) == 1


def test_a_histogram_counts_colors_of_upper_and_lower_rows() -> None:
    frame = np.zeros((6, 4, 3), np.uint8)
    frame[:3] = 255
    result = color_histogram(frame)
    assert result.sum() == pytest.approx(1)
    assert np.flatnonzero(result).tolist() == [6**3 - 1, 6**3]  # upper half white, lower half black
    assert np.abs(result - color_histogram(frame[::-1])).sum() / 2 == pytest.approx(1)


def test_frames_are_iterated_with_repetitions(tmp_path: Path) -> None:
    video = open_video(write_shots(tmp_path / "a.mp4", (0, 3)))
    indices = [0, 0, 3, 7, 7, 7, 20]
    np.testing.assert_array_equal(np.stack(list(video.iter_frames(indices))), video.get_frames(indices))
    array = ArrayReader(video.get_frames(range(5)))
    np.testing.assert_array_equal(np.stack(list(array.iter_frames([1, 1, 4]))), array.array[[1, 1, 4]])


def test_frames_shrunk_by_the_decoder_are_every_frame_shrunk(tmp_path: Path) -> None:
    video = open_video(write_shots(tmp_path / "a.mp4", (0, 1), (3, 1)))
    expected = np.stack(list(VideoReader.iter_shrunk_frames(video, 16))).astype(int)
    result = np.stack(list(video.iter_shrunk_frames(16)))
    assert result.shape == (20, 16, 16, 3)
    assert np.abs(result - expected).mean() < 6  # scaled by another filter


@pytest.mark.parametrize("is_short", [True, False])
def test_a_short_video_is_decoded_once_for_cuts_and_clips(
    tmp_path: Path, is_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_shots(tmp_path / "a.mp4", (0, 1), (3, 1))
    expected = open_video(path).get_frames([2, 5, 19])
    if not is_short:
        monkeypatch.setattr(pyav_reader, "_MAX_KEPT_PIXELS", 1)
    video, num_opened = open_video(path), 0
    open_container = pyav_reader.open_container

    def count(*arguments: object) -> object:
        nonlocal num_opened
        num_opened += 1
        return open_container(*arguments)

    monkeypatch.setattr(pyav_reader, "open_container", count)
    assert detect_cuts(video, 0.2) == [10]
    np.testing.assert_array_equal(np.stack(list(video.iter_frames([2, 5, 19]))), expected)
    assert num_opened == (1 if is_short else 2)


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
        ({"cut_threshold": 1.5}, "--cut-threshold must be above 0 and at most 1, got 1.5"),
    ],
)
def test_invalid_settings_are_errors(settings: dict[str, float], words: str) -> None:
    with pytest.raises(StillmotionError, match=words):
        VideoSegmentConfig(**settings)
