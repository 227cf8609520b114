"""Animated thumbnails."""

import io

import numpy as np
from PIL import Image

from stillmotion.data.video.thumbnails import encode_animated_webp, shrink_to_short_side


def test_a_small_frame_keeps_its_shape_and_is_never_enlarged() -> None:
    assert shrink_to_short_side(np.zeros((200, 400, 3), np.uint8), 50).shape == (50, 100, 3)
    assert shrink_to_short_side(np.zeros((20, 31, 3), np.uint8), 50).shape == (20, 31, 3)


def test_frames_move_at_their_pace_within_what_an_eye_follows() -> None:
    frames = [np.full((24, 32, 3), 40 * i, np.uint8) for i in range(5)]
    for seconds, expected in ((0.1, 100), (0.001, 80), (9.0, 200)):
        picture = Image.open(io.BytesIO(encode_animated_webp(frames, frame_seconds=seconds)))
        assert (picture.format, getattr(picture, "n_frames", 1), picture.size) == ("WEBP", 5, (32, 24))
        picture.seek(1)
        picture.load()
        assert picture.info["duration"] == expected


def test_what_is_too_large_loses_quality_and_then_frames() -> None:
    noise = list(np.random.default_rng(0).integers(0, 256, (16, 96, 96, 3), np.uint8))
    full_size = len(encode_animated_webp(noise, frame_seconds=0.1))
    for max_bytes in (full_size, full_size // 2, full_size // 4, full_size // 20):
        assert len(encode_animated_webp(noise, frame_seconds=0.1, max_bytes=max_bytes)) <= max_bytes
    # At least one frame remains for any limit.
    assert len(encode_animated_webp(noise[:1], frame_seconds=0.1, max_bytes=10)) > 10


def test_the_longer_side_of_a_thumbnail_is_bounded() -> None:
    wide = shrink_to_short_side(np.zeros((96, 17_000, 3), np.uint8), 96)
    assert wide.shape == (4, 768, 3)
    assert shrink_to_short_side(wide.transpose(1, 0, 2), 96).shape == (768, 4, 3)
    assert Image.open(io.BytesIO(encode_animated_webp([wide, wide], frame_seconds=0.1))).size == (768, 4)
