"""Forward warping of pixels along optical flow, without interpolation.

No value is mixed with another and none is used twice, so a frame of independent noise stays independent noise under
any flow, and a single frame does not show the motion. (Interpolation would blur noise where motion is sub-pixel, and
backward sampling would repeat it where the flow expands; either shows the motion.)

It works on NumPy arrays, as frames are decoded: at the size of a video frame, torch takes more than twice as long.
Shapes: pixels (H, W, C); flow (H, W, 2), in pixels, x before y; offset (2, H, W), likewise.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

# The high bits of a pixel's key are its speed in steps of 1/64 px, clipped; the low bits are its index.
_SPEED_STEPS, _MAX_SPEED = 64, 4096
_OUTSIDE = np.float32(1e9)  # replaces NaN and infinite flow: outside of any frame
# Targets are counted with a border around the frame, which no pixel can claim. Pixels that end further away are moved
# to the middle of the border, so that their neighbors are outside as well.
_BORDER = 3
_UNCLAIMED, _UNAVAILABLE = -1, np.iinfo(np.int64).max  # instead of the key of the pixel that claimed a target


class WarpResult(NamedTuple):
    """Result of `forward_warp`.

    Attributes:
        pixels: Warped pixels, (H, W, C).
        offset: Distance of each pixel's true end point from the pixel it was moved to, (2, H, W); zero if filled.
        is_filled: Pixels that nothing moved to, bool (H, W).
    """

    pixels: np.ndarray
    offset: np.ndarray
    is_filled: np.ndarray


def forward_warp(
    pixels: np.ndarray, flow: np.ndarray, *, fill: np.ndarray, offset: np.ndarray | None = None
) -> WarpResult:
    """Forward-warp pixels along optical flow without interpolation; empty pixels are taken from `fill`.

    A pixel moves to the nearest free one of the four pixels around its end point. Of two that collide the faster one
    stays, since moving objects are mostly in front; a pixel that finds no free target, or leaves the frame, is dropped.

    Args:
        pixels: Pixels, (H, W, C).
        flow: Displacement of each pixel, (H, W, 2).
        fill: Values of empty pixels (disocclusions, borders), (H, W, C).
        offset: `WarpResult.offset` of the step before, so that sub-pixel motion adds up over steps.

    Returns:
        Warped pixels, remaining offsets and a mask of filled pixels.
    """
    height, width = flow.shape[:2]
    count = height * width
    index, column, row = _grid(height, width)
    if not np.isfinite(flow.sum()):
        flow = np.where(np.isfinite(flow), flow, _OUTSIDE)
    across, down = np.ascontiguousarray(flow.reshape(count, 2).T, np.float32)
    speed = np.minimum(np.sqrt(across * across + down * down), _MAX_SPEED)
    bits = count.bit_length()
    key = (speed * _SPEED_STEPS).astype(np.int64)
    key <<= bits
    key |= index
    if offset is not None:
        across, down = across + offset[0].reshape(count), down + offset[1].reshape(count)
    x, y = column + across, row + down
    owner = np.full((height + 2 * _BORDER, width + 2 * _BORDER), _UNAVAILABLE)
    inside = owner[_BORDER:-_BORDER, _BORDER:-_BORDER]
    inside[:] = _UNCLAIMED
    target = _nearest(x, y, height, width)
    remaining = _claim_targets(owner.reshape(-1), target, key)
    _place_remaining(owner, target.take(remaining), x.take(remaining), y.take(remaining), key.take(remaining))
    claimed = inside.reshape(count)
    is_filled = claimed < 0
    empty = np.flatnonzero(is_filled)
    source = claimed & ((1 << bits) - 1)
    source[empty] = empty  # any finite value
    warped = pixels.reshape(count, -1).take(source, 0)
    warped[empty] = fill.reshape(count, -1).take(empty, 0)
    new_offset = np.empty((2, count), np.float32)
    np.subtract(x.take(source), column, out=new_offset[0])
    np.subtract(y.take(source), row, out=new_offset[1])
    new_offset[:, empty] = 0
    shape = (height, width)
    return WarpResult(warped.reshape(pixels.shape), new_offset.reshape(2, *shape), is_filled.reshape(shape))


@lru_cache(maxsize=8)  # all frames of a video share it
def _grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Index, column and row of every pixel."""
    index = np.arange(height * width)
    return index, (index % width).astype(np.float32), (index // width).astype(np.float32)


def _nearest(x: np.ndarray, y: np.ndarray, height: int, width: int) -> np.ndarray:
    """Index of the pixel nearest to each point, in the frame with its border."""
    padded_width = width + 2 * _BORDER
    column = _round(x).clip(np.float32(1 - _BORDER), np.float32(width + _BORDER - 2))
    row = _round(y).clip(np.float32(1 - _BORDER), np.float32(height + _BORDER - 2))
    # In integers, since float32 cannot count the pixels of a large frame.
    index = row.astype(np.int64)
    index *= padded_width
    index += column.astype(np.int32)
    index += _BORDER * (padded_width + 1)
    return index


def _round(x: np.ndarray) -> np.ndarray:
    # Not `rint`, which rounds .5 to even numbers and so neighbors with the same motion to one pixel.
    return np.floor(x + np.float32(0.5))


def _claim_targets(owner: np.ndarray, target: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Give each target to the largest key that claims it; return the positions of the others."""
    np.maximum.at(owner, target, key)
    return np.flatnonzero(owner.take(target) != key)


def _place_remaining(owner: np.ndarray, target: np.ndarray, x: np.ndarray, y: np.ndarray, key: np.ndarray) -> None:
    """Let pixels that lost their nearest target claim the second, third or fourth nearest, if it is free."""
    flat_owner, width = owner.reshape(-1), owner.shape[1]
    gap_x, gap_y = x - _round(x), y - _round(y)
    across, down = np.sign(gap_x).astype(np.int64), np.sign(gap_y).astype(np.int64) * width
    second = np.where(np.abs(gap_x) >= np.abs(gap_y), across, down)
    choices = np.stack([second, across + down - second, across + down])
    choices += target
    for choice in range(3):
        candidate = choices[choice]
        candidate[flat_owner.take(candidate) >= 0] = 0  # already claimed: index 0 is in the border
        remaining = _claim_targets(flat_owner, candidate, key)
        choices, key = choices.take(remaining, 1), key.take(remaining)
