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
_AWAY = np.float32(1e9)


class Moved(NamedTuple):
    """What `move` gives.

    offset: how far the true end point of each pixel lies from the place it got; zero for fresh ones.
    fresh: (H, W) bool, the places that nothing moved to.
    """

    pixels: np.ndarray
    offset: np.ndarray
    fresh: np.ndarray


def move(pixels: np.ndarray, flow: np.ndarray, *, fill: np.ndarray, offset: np.ndarray | None = None) -> Moved:
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
        flow = np.where(np.isfinite(flow), flow, _AWAY)
    across, down = np.ascontiguousarray(flow.reshape(count, 2).T, np.float32)
    speed = np.minimum(np.sqrt(across * across + down * down), _FASTEST)
    bits = count.bit_length()
    key = (speed * _SPEED_STEPS).astype(np.int64)
    key <<= bits
    key |= number
    if offset is not None:
        across, down = across + offset[0].reshape(count), down + offset[1].reshape(count)
    x, y = column + across, row + down
    # The last place is no place: it takes those that end outside, and no key equals what stands in it.
    owner = np.full(count + 1, -1, np.int64)
    owner[count] = np.iinfo(np.int64).max
    homeless, wanted, at_x, at_y = number, key, x, y
    for choice in range(4):
        place = _place(at_x, at_y, choice, height, width)
        if choice:  # a place given in an earlier round stays given
            place[owner.take(place) >= 0] = count
        np.maximum.at(owner, place, wanted)
        left = np.flatnonzero(owner.take(place) != wanted)
        if len(left) == 0:
            break
        homeless, wanted, at_x, at_y = homeless[left], wanted[left], at_x[left], at_y[left]
    owner = owner[:count]
    fresh = owner < 0
    empty = np.flatnonzero(fresh)
    source = owner & ((1 << bits) - 1)
    source[empty] = empty  # any place that is finite
    arrived = pixels.reshape(count, -1).take(source, 0)
    arrived[empty] = fill.reshape(count, -1)[empty]
    rest = np.empty((2, count), np.float32)
    np.subtract(x.take(source), column, out=rest[0])
    np.subtract(y.take(source), row, out=rest[1])
    rest[:, empty] = 0
    return Moved(arrived.reshape(pixels.shape), rest.reshape(2, height, width), fresh.reshape(height, width))


@lru_cache(maxsize=8)  # a video asks for the same one at every frame
def _grid(height: int, width: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number, the column and the row of every place."""
    number = np.arange(height * width)
    return number, (number % width).astype(np.float32), (number // width).astype(np.float32)


def _place(x: np.ndarray, y: np.ndarray, choice: int, height: int, width: int) -> np.ndarray:
    """The number of the nearest place to each point, or of the second, third or fourth nearest; H·W if outside."""
    # Not `rint`, which sends halves to even numbers and so neighbours that move alike to one place.
    column, row = np.floor(x + 0.5), np.floor(y + 0.5)
    if choice:
        gap_x, gap_y = x - column, y - row
        aside = (np.abs(gap_x) >= np.abs(gap_y)) == (choice == 1)
        column = np.where(aside | (choice == 3), column + np.sign(gap_x), column)
        row = np.where(~aside | (choice == 3), row + np.sign(gap_y), row)
    outside = (column < 0) | (column >= width) | (row < 0) | (row >= height)
    column[outside] = row[outside] = 0
    # In whole numbers, since float32 cannot count the pixels of a large frame.
    place = row.astype(np.int64)
    place *= width
    place += column.astype(np.int32)
    place[outside] = height * width
    return place
