"""Positional grids, and the windows that positional encoding augmentation (PEA) cuts out of enlarged ones.

A grid is (h, w, P): P channels of a learned or sinusoidal table, or the 2 coordinates that rotary encodings turn by.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

WindowMode = Literal["none", "center", "random", "edge", "multiple"]


def resize_grid(grid: Tensor, rows: int, columns: int) -> Tensor:
    """The grid at another size, bicubic, as image transformers fit their tables to an image."""
    if tuple(grid.shape[:2]) == (rows, columns):
        return grid
    moved = grid.movedim(-1, 0)[None]
    found = F.interpolate(moved.float(), size=(rows, columns), mode="bicubic", align_corners=False)
    return found[0].movedim(0, -1).to(grid.dtype)


def cell_centers(rows: int, columns: int, *, device: torch.device | None = None) -> Tensor:
    """Coordinates (rows, columns, 2) of the middles of cells, y and x from -1 to 1: what rotary encodings are given."""
    y, x = (2 * (torch.arange(n, device=device) + 0.5) / n - 1 for n in (rows, columns))
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1)


def sincos_grid(rows: int, columns: int, embed_dim: int) -> Tensor:
    """The fixed table (rows, columns, width) of MAE: sines and cosines of the column, then of the row."""
    if embed_dim % 4:
        raise StillmotionError(f"width is {embed_dim}; a table of sines and cosines needs a multiple of 4")
    rates = 10000.0 ** -(torch.arange(embed_dim // 4, dtype=torch.float64) / (embed_dim // 4))
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in (rows, columns)), indexing="ij")
    parts = [f(place[..., None] * rates) for place in (x, y) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, dim=-1).float()


def enlarged_grid_size(rows: int, columns: int, *, ratio: float) -> tuple[int, int]:
    """The size of a grid resized by 1 + ratio (α)."""
    if ratio < 0:
        raise StillmotionError(f"the ratio of PEA is {ratio}; it enlarges a grid: choose 0 or more, 10 in the paper")
    return round(rows * (1 + ratio)), round(columns * (1 + ratio))


def sample_window_corners(
    margin: tuple[int, int], *, mode: WindowMode, num_windows: int, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Top left corners of windows in an enlarged grid.

    margin: how many rows and columns it has more than a window.
    mode: centre; random, anywhere; edge, touching one of the four sides; multiple, `num_windows` random ones at a time.
    """
    if mode == "none":
        return []
    if mode == "center":
        return [(margin[0] // 2, margin[1] // 2)]
    top, left = (rng.integers(0, n + 1, size=num_windows) for n in margin)
    if mode == "edge":
        side = int(rng.integers(4))
        top[0] = {0: 0, 1: margin[0]}.get(side, top[0])
        left[0] = {2: 0, 3: margin[1]}.get(side, left[0])
    corners = list(zip(top.tolist(), left.tolist(), strict=True))
    return corners if mode == "multiple" else corners[:1]


def crop_windows(grid: Tensor, corners: Sequence[tuple[int, int]], rows: int, columns: int) -> Tensor:
    """The windows (n, rows, columns, P) of a grid that begin at these corners."""
    return torch.stack([grid[top : top + rows, left : left + columns] for top, left in corners])
