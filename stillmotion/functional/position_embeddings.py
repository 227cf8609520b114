"""Position-embedding grids: resizing, sin-cos tables, random windows (positional encoding augmentation, PEA).

A grid is (h, w, P): P channels of a learned or sinusoidal table, or the 2 coordinates of rotary encodings.
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
    """Resize a position grid with bicubic interpolation, as image transformers do.

    Args:
        grid: Grid, (h, w, P).
        rows: New number of rows.
        columns: New number of columns.

    Returns:
        Grid, (rows, columns, P); the same tensor if the size does not change.
    """
    if tuple(grid.shape[:2]) == (rows, columns):
        return grid
    channels_first = grid.movedim(-1, 0)[None]
    resized = F.interpolate(channels_first.float(), size=(rows, columns), mode="bicubic", align_corners=False)
    return resized[0].movedim(0, -1).to(grid.dtype)


def cell_centers(rows: int, columns: int, *, device: torch.device | None = None) -> Tensor:
    """Coordinates of cell centers, y and x from -1 to 1, for rotary encodings.

    Args:
        rows: Rows of the grid.
        columns: Columns of the grid.
        device: Device of the result.

    Returns:
        Coordinates, (rows, columns, 2).
    """
    y, x = (2 * (torch.arange(n, device=device) + 0.5) / n - 1 for n in (rows, columns))
    return torch.stack(torch.meshgrid(y, x, indexing="ij"), dim=-1)


def sincos_grid(rows: int, columns: int, embed_dim: int) -> Tensor:
    """Fixed sin-cos position table of MAE: sines and cosines of the column, then of the row.

    Args:
        rows: Rows of the grid.
        columns: Columns of the grid.
        embed_dim: Channels, a multiple of 4.

    Returns:
        Table, (rows, columns, embed_dim).

    Raises:
        StillmotionError: If `embed_dim` is not a multiple of 4.
    """
    if embed_dim % 4:
        raise StillmotionError(f"embed_dim is {embed_dim}; a sin-cos table needs a multiple of 4.")
    rates = 10000.0 ** -(torch.arange(embed_dim // 4, dtype=torch.float64) / (embed_dim // 4))
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in (rows, columns)), indexing="ij")
    parts = [f(position[..., None] * rates) for position in (x, y) for f in (torch.sin, torch.cos)]
    return torch.cat(parts, dim=-1).float()


def enlarged_grid_size(rows: int, columns: int, *, ratio: float) -> tuple[int, int]:
    """Size of a grid that is enlarged by 1 + ratio.

    Args:
        rows: Rows of the grid.
        columns: Columns of the grid.
        ratio: Ratio α of PEA.

    Returns:
        Rows and columns of the enlarged grid.

    Raises:
        StillmotionError: If the ratio is negative.
    """
    if ratio < 0:
        raise StillmotionError(f"The ratio of PEA is {ratio}; must be 0 or more (10 in the paper).")
    return round(rows * (1 + ratio)), round(columns * (1 + ratio))


def sample_window_corners(
    margin: tuple[int, int], *, mode: WindowMode, num_windows: int, rng: np.random.Generator
) -> list[tuple[int, int]]:
    """Sample top left corners of windows in an enlarged grid.

    Args:
        margin: Rows and columns by which the grid exceeds a window.
        mode: "none"; "center"; "random", one window anywhere; "edge", one that touches one of the four sides;
            "multiple", `num_windows` random ones.
        num_windows: Number of windows of "multiple".
        rng: Random generator.

    Returns:
        Corners (top, left).
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
    """Cut windows out of a grid.

    Args:
        grid: Grid, (h, w, P).
        corners: Top left corners of the n windows.
        rows: Rows of a window.
        columns: Columns of a window.

    Returns:
        Windows, (n, rows, columns, P).
    """
    return torch.stack([grid[top : top + rows, left : left + columns] for top, left in corners])
