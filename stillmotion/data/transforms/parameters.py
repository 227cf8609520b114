"""Random parameters of one augmentation: crop box, color matrix, blur."""

from dataclasses import dataclass

import numpy as np

LUMA_WEIGHTS = np.array([0.299, 0.587, 0.114])
# Rows: luma and two chroma axes (YIQ). A hue shift rotates the last two.
_YIQ = np.array([LUMA_WEIGHTS, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
_RGB = np.linalg.inv(_YIQ)
_NUM_TRIES = 10


@dataclass(frozen=True)
class AugmentParams:
    """Random parameters of n clips.

    Attributes:
        crop_box: Top, left, height and width in pixels of the resized frame, (n, 4).
        flip: Whether to flip horizontally, (n,).
        color_matrix: Color transform, (n, 3, 3).
        luma_offset: Offset added to the colors, as a multiple of the clip's mean luma, (n,).
        blur_sigma: Standard deviation of the blur, 0 for none, (n,).
    """

    crop_box: np.ndarray
    flip: np.ndarray
    color_matrix: np.ndarray
    luma_offset: np.ndarray
    blur_sigma: np.ndarray

    @property
    def packed(self) -> np.ndarray:
        """Color matrix (9), luma offset and blur sigma of each clip, float32 (n, 11)."""
        parts = (self.color_matrix.reshape(-1, 9), self.luma_offset[:, None], self.blur_sigma[:, None])
        return np.concatenate(parts, 1).astype(np.float32)


def random_crop_boxes(
    rng: np.random.Generator,
    n: int,
    height: int,
    width: int,
    *,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    cut: bool = False,
) -> np.ndarray:
    """Sample boxes of random resized crops: the first of ten tries that fits, as in torchvision.

    If none fits, it is the largest box of an allowed aspect ratio.

    Args:
        rng: Random generator.
        n: Number of boxes.
        height: Height of the frame.
        width: Width of the frame.
        scale: Range of the area, as a fraction of the frame.
        ratio: Range of the aspect ratio.
        cut: Take the first try, and cut off what exceeds the frame.

    Returns:
        Top, left, height and width, (n, 4).
    """
    areas = height * width * rng.uniform(*scale, (n, _NUM_TRIES))
    ratios = np.exp(rng.uniform(np.log(ratio[0]), np.log(ratio[1]), (n, _NUM_TRIES)))
    h = np.maximum(np.round(np.sqrt(areas / ratios)), 1).astype(np.int64)
    w = np.maximum(np.round(np.sqrt(areas * ratios)), 1).astype(np.int64)
    if cut:
        h, w = np.minimum(h, height), np.minimum(w, width)
    fits = (h <= height) & (w <= width)
    first, any_fits, rows = fits.argmax(1), fits.any(1), np.arange(n)
    limit = float(np.clip(width / height, *ratio))
    h = np.where(any_fits, h[rows, first], min(height, max(1, round(width / limit))))
    w = np.where(any_fits, w[rows, first], min(width, max(1, round(height * limit))))
    top, left = rng.integers(0, height - h + 1), rng.integers(0, width - w + 1)
    return np.stack([top, left, h, w], 1)


def center_crop_boxes(n: int, height: int, width: int, *, side: int) -> np.ndarray:
    """Repeat the box of the center square.

    Args:
        n: Number of boxes.
        height: Height of the frame.
        width: Width of the frame.
        side: Side of the square.

    Returns:
        Top, left, height and width, (n, 4).
    """
    return np.tile([(height - side) // 2, (width - side) // 2, side, side], (n, 1))


def color_matrices(scale: np.ndarray, saturation: np.ndarray, hue_angle: np.ndarray) -> np.ndarray:
    """Build color transforms.

    Args:
        scale: Factor of RGB, (n,).
        saturation: Factor of the chroma, (n,).
        hue_angle: Rotation of the chroma in radians, (n,).

    Returns:
        Matrices (n, 3, 3).
    """
    chroma = np.zeros((len(scale), 3, 3))
    chroma[:, 0, 0] = 1
    chroma[:, 1, 1] = chroma[:, 2, 2] = saturation * np.cos(hue_angle)
    chroma[:, 2, 1] = saturation * np.sin(hue_angle)
    chroma[:, 1, 2] = -chroma[:, 2, 1]
    return scale[:, None, None] * (_RGB @ chroma @ _YIQ)
