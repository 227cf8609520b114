"""Restricted attention: each cell of a frame finds its nearest cells in the context, and takes over their labels.

Similarities are computed for one block of context cells at a time, and only for the queries within reach of it; of
each block the k best are kept. So memory is that of one block, whatever the length of the context.

Shapes: C context frames of h×w cells, D channels, L labels, k matches. A context cell's number is its place among the
C·h·w cells.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from stillmotion.errors import StillmotionError

_BLOCK = 512  # context cells whose similarities are held at a time, about: a matrix product of this width is efficient


class Matches(NamedTuple):
    """The most similar context cells of each cell: similarity and number, both (h, w, k), best first.

    Where fewer than k cells are within reach the similarity is -inf.
    """

    similarity: Tensor
    cell: Tensor


@torch.no_grad()
def nearest_cells(query: Tensor, context: Tensor, *, k: int, radius: int | None = None, disk: bool = False) -> Matches:
    """The k most similar of the context cells within reach, by the inner product.

    query: (h, w, D) and context: (C, h, w, D); L2-normalised, the similarity is cosine.
    radius: how many rows and columns away a cell may lie; None reaches everywhere.
    disk: within reach is what lies nearer than `radius` in Euclidean distance.
    """
    h, w, d = query.shape
    c = len(context)
    if context.shape[1:] != query.shape or c == 0:
        raise StillmotionError(
            f"the query is {tuple(query.shape)} and the context {tuple(context.shape)}; the context must be frames of "
            "the query's shape"
        )
    if not 0 < k <= c * h * w or (radius is not None and radius < disk):
        raise StillmotionError(
            f"k is {k} and radius {radius} in a context of {c * h * w} cells; choose k from 1 to {c * h * w} and a "
            f"radius of at least {int(disk)}"
        )
    best = query.new_full((h, w, k), -torch.inf)
    cell = torch.zeros((h, w, k), dtype=torch.long, device=query.device)
    number = torch.arange(c * h * w, device=query.device).view(c, h, w)
    for rows, columns in _blocks(h, w, c, radius):
        reach = _reach(rows, h, radius), _reach(columns, w, radius)
        keys, numbers = context[:, rows, columns].reshape(-1, d), number[:, rows, columns].reshape(-1)
        asking, known, cells = (x[reach].flatten(0, 1) for x in (query, best, cell))
        similarity = asking @ keys.mT
        # Most queries have found better already: only the others are looked at.
        better = (similarity.amax(-1) > known[:, -1]).nonzero()[:, 0]
        similarity = similarity[better]
        far = _far((rows, columns), reach, radius, disk=disk, device=query.device)
        if far is not None:
            similarity.view(len(better), c, -1).masked_fill_(far[better, None], -torch.inf)
        values, place = similarity.topk(min(k, len(keys)), -1)
        values, place = torch.cat([known[better], values], -1), torch.cat([cells[better], numbers[place]], -1)
        known[better], order = values.topk(k, -1)
        cells[better] = place.gather(-1, order)
        best[reach], cell[reach] = known.view_as(best[reach]), cells.view_as(cell[reach])
    return Matches(best, cell)


def joined(first: Matches, second: Matches, *, offset: int) -> Matches:
    """The best of two searches for as many matches; `offset` is added to the second's cell numbers."""
    values, place = torch.cat([first.similarity, second.similarity], -1).topk(first.cell.shape[-1], -1)
    return Matches(values, torch.cat([first.cell, second.cell + offset], -1).gather(-1, place))


def carried(labels: Tensor, matches: Matches, *, temperature: float) -> Tensor:
    """Labels (h, w, L): the mean of the matched cells' labels, weighted by the softmax of their similarity.

    labels: (C, h, w, L) of the context.
    """
    weight = (matches.similarity / temperature).softmax(-1)
    return (weight[..., None, :] @ labels.flatten(0, 2)[matches.cell])[..., 0, :]


def _blocks(h: int, w: int, c: int, radius: int | None) -> Iterator[tuple[slice, slice]]:
    """Blocks of cells that cover the frame, narrow along its longer side: few queries beyond reach meet one."""
    short = min(h, w)
    parts = max(1, round(short / (radius + 1))) if radius is not None else 1
    deep = -(-short // parts)
    narrow = max(1, _BLOCK // (c * deep))
    height, width = (deep, narrow) if h <= w else (narrow, deep)
    for top in _spread(-(-h // height)):
        for left in _spread(-(-w // width)):
            yield (
                slice(top * height, min(h, (top + 1) * height)),
                slice(left * width, min(w, (left + 1) * width)),
            )


def _spread(count: int) -> list[int]:
    """The numbers below `count`, each far from those before it: every query soon meets a block near to it."""
    digits = (count - 1).bit_length()
    turned = (int(f"{i:0{digits}b}"[::-1], 2) for i in range(2**digits))
    return [i for i in turned if i < count]


def _reach(part: slice, size: int, radius: int | None) -> slice:
    """The places of an axis from which some place in `part` is within reach."""
    return slice(0, size) if radius is None else slice(max(0, part.start - radius), min(size, part.stop + radius))


def _far(
    block: tuple[slice, slice], reach: tuple[slice, slice], radius: int | None, *, disk: bool, device: torch.device
) -> Tensor | None:
    """Which cells of the block are out of reach, (queries, cells); None where none is."""
    if radius is None:
        return None
    dy, dx = (
        torch.arange(q.start, q.stop, device=device)[:, None] - torch.arange(b.start, b.stop, device=device)
        for q, b in zip(reach, block, strict=True)
    )
    dy, dx = dy[:, None, :, None], dx[None, :, None, :]
    far = dy.square() + dx.square() >= radius**2 if disk else (dy.abs() > radius) | (dx.abs() > radius)
    return far.flatten(2).flatten(0, 1) if bool(far.any()) else None
