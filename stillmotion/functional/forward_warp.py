"""Pixels carried along optical flow, each to a place of its own.

No value is mixed with another and none is copied twice: a frame of independent noise stays independent noise under any
flow, so that one frame by itself says nothing of the motion that made it. (Interpolation blurs noise where motion is
sub-pixel, and sampling backwards repeats it where the flow expands; either leaves a picture of the motion.)

On NumPy arrays, as frames are decoded: at the size of a video frame, torch takes more than twice as long.
Shapes: pixels (H, W, C); flow (H, W, 2), in pixels, x before y; offset (2, H, W), likewise.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

# A speed in 1/64 px, clipped here, stands in the high digits of a key whose low digits are the pixel's number.
_SPEED_STEPS, _FASTEST = 64, 4096
# Where a flow that is no number leads: out of any frame.
_OUTSIDE = np.float32(1e9)
# Places are counted with a rim about the frame, which nobody gets. What ends further away is brought to the rim's
# middle, so that the next place is outside as well.
_BORDER = 3
_UNCLAIMED, _UNAVAILABLE = -1, np.iinfo(np.int64).max  # in place of the key of the pixel that has a place


class WarpResult(NamedTuple):
    """What `move` gives.

    offset: how far the true end point of each pixel lies from the place it got; zero for fresh ones.
    is_filled: (H, W) bool, the places that nothing moved to.
    """

    pixels: np.ndarray
    offset: np.ndarray
    is_filled: np.ndarray


def forward_warp(
    pixels: np.ndarray, flow: np.ndarray, *, fill: np.ndarray, offset: np.ndarray | None = None
) -> WarpResult:
    """Carry each pixel along the flow; places that nothing moves to (disocclusions, borders) are taken from `fill`.

    flow: where each pixel goes. fill: (H, W, C).
    offset: that of the step before, so that motion of less than a pixel adds up over steps.

    A pixel takes the nearest free one of the four places about its end point. Of two that meet, the faster one stays,
    as what moves is mostly in front; one that finds no place, or leaves the frame, is dropped.
    """
    height, width = flow.shape[:2]
    count = height * width
    number, column, row = _grid(height, width)
    if not np.isfinite(flow.sum()):
        flow = np.where(np.isfinite(flow), flow, _OUTSIDE)
    across, down = np.ascontiguousarray(flow.reshape(count, 2).T, np.float32)
    speed = np.minimum(np.sqrt(across * across + down * down), _FASTEST)
    bits = count.bit_length()
    key = (speed * _SPEED_STEPS).astype(np.int64)
    key <<= bits
    key |= number
    if offset is not None:
        across, down = across + offset[0].reshape(count), down + offset[1].reshape(count)
    x, y = column + across, row + down
    owner = np.full((height + 2 * _BORDER, width + 2 * _BORDER), _UNAVAILABLE)
    inside = owner[_BORDER:-_BORDER, _BORDER:-_BORDER]
    inside[:] = _UNCLAIMED
    place = _nearest(x, y, height, width)
    left = _claim_places(owner.reshape(-1), place, key)
    _place_remaining(owner, place.take(left), x.take(left), y.take(left), key.take(left))
    held = inside.reshape(count)
    fresh = held < 0
    empty = np.flatnonzero(fresh)
    source = held & ((1 << bits) - 1)
    source[empty] = empty  # any place that is finite
    arrived = pixels.reshape(count, -1).take(source, 0)
    arrived[empty] = fill.reshape(count, -1).take(empty, 0)
    rest = np.empty((2, count), np.float32)
    np.subtract(x.take(source), column, out=rest[0])
    np.subtract(y.take(source), row, out=rest[1])
    rest[:, empty] = 0
    return WarpResult(arrived.reshape(pixels.shape), rest.reshape(2, height, width), fresh.reshape(height, width))


@lru_cache(maxsize=8)  # a video asks for the same one at every frame
def _grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number, the column and the row of every place."""
    number = np.arange(height * width)
    return number, (number % width).astype(np.float32), (number // width).astype(np.float32)


def _nearest(x: np.ndarray, y: np.ndarray, height: int, width: int) -> np.ndarray:
    """The number of the nearest place to each point."""
    wide = width + 2 * _BORDER
    column = _round(x).clip(np.float32(1 - _BORDER), np.float32(width + _BORDER - 2))
    row = _round(y).clip(np.float32(1 - _BORDER), np.float32(height + _BORDER - 2))
    # In whole numbers, since float32 cannot count the pixels of a large frame.
    place = row.astype(np.int64)
    place *= wide
    place += column.astype(np.int32)
    place += _BORDER * (wide + 1)
    return place


def _round(x: np.ndarray) -> np.ndarray:
    # Not `rint`, which sends halves to even numbers and so neighbours that move alike to one place.
    return np.floor(x + np.float32(0.5))


def _claim_places(places: np.ndarray, place: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Give each place that is asked for to the greatest key that asks; where those stand that got nothing."""
    np.maximum.at(places, place, key)
    return np.flatnonzero(places.take(place) != key)


def _place_remaining(owner: np.ndarray, place: np.ndarray, x: np.ndarray, y: np.ndarray, key: np.ndarray) -> None:
    """Give those that did not get their nearest place the second, third or fourth nearest, if it is free."""
    places, wide = owner.reshape(-1), owner.shape[1]
    gap_x, gap_y = x - _round(x), y - _round(y)
    across, down = np.sign(gap_x).astype(np.int64), np.sign(gap_y).astype(np.int64) * wide
    second = np.where(np.abs(gap_x) >= np.abs(gap_y), across, down)
    choices = np.stack([second, across + down - second, across + down])
    choices += place
    for choice in range(3):
        asked = choices[choice]
        asked[places.take(asked) >= 0] = 0  # a place given in an earlier round stays given; the rim's first is nobody's
        left = _claim_places(places, asked, key)
        choices, key = choices.take(left, 1), key.take(left)
