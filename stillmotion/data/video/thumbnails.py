"""Animated WebP thumbnails."""

import io
from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image

from stillmotion.data.video.frame_size import short_side_size

_MIN_FRAME_MS, _MAX_FRAME_MS = 80, 200
_QUALITIES = (45, 25, 10)
_MAX_ASPECT_RATIO = 8  # of thumbnails; no side of a WebP may exceed 16383 pixels


def shrink_to_short_side(frame: np.ndarray, short_side: int) -> np.ndarray:
    """Shrink a frame; it is never enlarged. The longer side becomes at most 8 times the maximum of the shorter.

    Args:
        frame: Frame (H, W, 3).
        short_side: Maximum length of the shorter side.
    """
    height, width = short_side_size(frame.shape[:2], short_side, enlarge=False)
    scale = min(1.0, _MAX_ASPECT_RATIO * short_side / max(height, width))
    height, width = (max(1, round(side * scale)) for side in (height, width))
    return cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA)


def encode_animated_webp(frames: Sequence[np.ndarray], *, frame_seconds: float, max_bytes: int | None = None) -> bytes:
    """Encode frames as an animated WebP that repeats.

    Args:
        frames: Frames of one size, uint8 (H, W, 3).
        frame_seconds: Duration of a frame; limited to 0.08 to 0.2 seconds.
        max_bytes: Maximum file size. To reach it, the quality is decreased first, then every second frame is dropped.
    """
    while True:
        for quality in _QUALITIES if max_bytes is not None else _QUALITIES[:1]:
            content = _webp(frames, frame_seconds, quality)
            if max_bytes is None or len(content) <= max_bytes:
                return content
        if len(frames) == 1:
            return content
        frames, frame_seconds = frames[::2], 2 * frame_seconds


def _webp(frames: Sequence[np.ndarray], seconds: float, quality: int) -> bytes:
    first, *others = (Image.fromarray(frame) for frame in frames)
    duration_ms = max(_MIN_FRAME_MS, min(_MAX_FRAME_MS, round(1000 * seconds)))
    file = io.BytesIO()
    first.save(
        file, "WEBP", save_all=True, append_images=others, duration=duration_ms, loop=0, quality=quality, method=4
    )
    return file.getvalue()
