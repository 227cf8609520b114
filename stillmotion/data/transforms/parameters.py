"""The random choices of an augmentation, apart from what applies them, here or on a device."""

from dataclasses import dataclass

import numpy as np

LUMA_WEIGHTS = np.array([0.299, 0.587, 0.114])
# Rows: luma and two chroma axes (YIQ). A hue shift turns the last two.
_YIQ = np.array([LUMA_WEIGHTS, [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])
_RGB = np.linalg.inv(_YIQ)
_TRIES = 10


@dataclass(frozen=True)
class AugmentParams:
    """The random choices for n clips; each field has one entry per clip.

    crop_box: (n, 4) top, left, height, width in whole pixels of the frame after `shrunk`.
    color_matrix: (n, 3, 3) colour transform. offset: (n,) what is added, as a multiple of the clip's mean luma.
    blur_sigma: (n,) of the blur; 0 is none.
    """

    crop_box: np.ndarray
    flip: np.ndarray
    color_matrix: np.ndarray
    luma_offset: np.ndarray
    blur_sigma: np.ndarray

    @property
    def packed(self) -> np.ndarray:
        """What is left to do to crops: (n, 11) float32, the rows of the matrix, the offset and the sigma."""
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
) -> np.ndarray:
    """(n, 4) boxes of random resized crops: the first of ten tries that fits, as in torchvision.

    Where none fits, it is the largest box of an allowed ratio.
    """
    areas = height * width * rng.uniform(*scale, (n, _TRIES))
    ratios = np.exp(rng.uniform(np.log(ratio[0]), np.log(ratio[1]), (n, _TRIES)))
    h = np.maximum(np.round(np.sqrt(areas / ratios)), 1).astype(np.int64)
    w = np.maximum(np.round(np.sqrt(areas * ratios)), 1).astype(np.int64)
    fits = (h <= height) & (w <= width)
    first, any_fits, rows = fits.argmax(1), fits.any(1), np.arange(n)
    limit = float(np.clip(width / height, *ratio))
    h = np.where(any_fits, h[rows, first], min(height, max(1, round(width / limit))))
    w = np.where(any_fits, w[rows, first], min(width, max(1, round(height * limit))))
    top, left = rng.integers(0, height - h + 1), rng.integers(0, width - w + 1)
    return np.stack([top, left, h, w], 1)


def center_crop_boxes(n: int, height: int, width: int, *, side: int) -> np.ndarray:
    """(n, 4) boxes of the square of the given side in the middle."""
    return np.tile([(height - side) // 2, (width - side) // 2, side, side], (n, 1))


def color_matrices(scale: np.ndarray, saturation: np.ndarray, hue_angle: np.ndarray) -> np.ndarray:
    """(n, 3, 3) matrices that scale RGB, scale its chroma by `saturation` and turn it by `hue_angle` radians."""
    chroma = np.zeros((len(scale), 3, 3))
    chroma[:, 0, 0] = 1
    chroma[:, 1, 1] = chroma[:, 2, 2] = saturation * np.cos(hue_angle)
    chroma[:, 2, 1] = saturation * np.sin(hue_angle)
    chroma[:, 1, 2] = -chroma[:, 2, 1]
    return scale[:, None, None] * (_RGB @ chroma @ _YIQ)
