"""Patches of one frame, and where a model finds them in another.

Shapes: N = h·w patches, D channels, S pixels a side.
"""

import colorsys
from collections.abc import Mapping, Sequence

import cv2
import numpy as np
import torch.nn.functional as F
from torch import Tensor

from stillmotion.explain.overlay import side_by_side


def lattice(grid: tuple[int, int], *, across: int = 5) -> list[int]:
    """The numbers of patches spread evenly over a grid, at most so many to a side."""
    rows, columns = (np.unique(np.linspace(0, size, min(across, size) + 2)[1:-1].astype(int)) for size in grid)
    return [int(row * grid[1] + column) for row in rows for column in columns]


def nearest_patches(first: Tensor, second: Tensor, patches: Sequence[int]) -> list[int]:
    """For each of these patches of one frame (N, D), the number of the most alike one of another (N, D), by cosine."""
    asked, known = F.normalize(first[list(patches)], dim=-1), F.normalize(second, dim=-1)
    return [int(number) for number in (asked @ known.T).argmax(1)]


def match_picture(
    frames: np.ndarray, grid: tuple[int, int], patches: Sequence[int], found: Mapping[str, Sequence[int]]
) -> np.ndarray:
    """The first frame with its patches marked, and the second for each name with the same marks where they were found.

    frames: uint8 (2, S, S, 3).
    """
    panels = {"first frame": _marked(frames[0], grid, patches)}
    panels |= {f"second, {name}": _marked(frames[1], grid, numbers) for name, numbers in found.items()}
    return side_by_side({name: panel[None] for name, panel in panels.items()})[0]


def _marked(frame: np.ndarray, grid: tuple[int, int], patches: Sequence[int]) -> np.ndarray:
    picture = frame.copy()
    height, width = (side / cells for side, cells in zip(frame.shape, grid, strict=False))
    for turn, number in enumerate(patches):
        row, column = divmod(number, grid[1])
        colour = tuple(255 * part for part in colorsys.hsv_to_rgb(turn / len(patches), 1, 1))
        start = round(column * width), round(row * height)
        stop = round((column + 1) * width), round((row + 1) * height)
        cv2.rectangle(picture, start, stop, (0, 0, 0), 3)
        cv2.rectangle(picture, start, stop, colour, 2)
    return picture
