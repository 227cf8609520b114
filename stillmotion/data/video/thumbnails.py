"""Small moving pictures: frames as an animated WebP, which every browser shows."""

import io
from collections.abc import Sequence

import cv2
import numpy as np
from PIL import Image

_MIN_FRAME_MS, _MAX_FRAME_MS = 80, 200  # milliseconds a frame
_QUALITIES = (45, 25, 10)


def shrink_to_short_side(frame: np.ndarray, short_side: int) -> np.ndarray:
    """A frame (H, W, 3) with its shorter edge at `short_side`, never enlarged."""
    scale = min(1.0, short_side / min(frame.shape[:2]))
    size = (max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale)))
    return cv2.resize(frame, size, interpolation=cv2.INTER_AREA)


def encode_animated_webp(frames: Sequence[np.ndarray], *, frame_seconds: float, max_bytes: int | None = None) -> bytes:
    """Frames, uint8 (H, W, 3) of one size, as an animated WebP that plays for ever.

    frame_seconds: from one frame to the next, within what an eye follows.
    max_bytes: bytes; where they are exceeded, quality falls first, and then every second frame.
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
    pace = max(_MIN_FRAME_MS, min(_MAX_FRAME_MS, round(1000 * seconds)))
    file = io.BytesIO()
    first.save(file, "WEBP", save_all=True, append_images=others, duration=pace, loop=0, quality=quality, method=4)
    return file.getvalue()
