"""Frames with known motion: a window that slides over a smooth texture."""

import cv2
import numpy as np


def sliding_frames(
    step: tuple[float, float], *, num_frames: int = 9, frame_size: tuple[int, int] = (64, 80), seed: int = 0
) -> np.ndarray:
    """Frames in which everything moves by (x, y) pixels from each to the next."""
    height, width = frame_size
    margin = 40
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, ((height + 2 * margin) // 4, (width + 2 * margin) // 4, 3), dtype=np.uint8)
    ground = cv2.resize(coarse, (width + 2 * margin, height + 2 * margin), interpolation=cv2.INTER_CUBIC)
    shifts = [
        np.array([[1, 0, i * step[0] - margin], [0, 1, i * step[1] - margin]], np.float32) for i in range(num_frames)
    ]
    return np.stack([cv2.warpAffine(ground, shift, (width, height), flags=cv2.INTER_CUBIC) for shift in shifts])
