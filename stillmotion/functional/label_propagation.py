"""Restricted attention: each cell of a frame finds its nearest cells in the context, and takes over their labels.

A block of queries is compared with what it can reach of each context frame. Where shorter floats multiply faster, they
go first, and what may be among the k best, by the bound of their rounding, is compared again in full. So the matches
are those of full precision. Memory is that of one block, and of a copy of the context.

Shapes: C context frames of h×w cells, D channels, L labels, k matches; a block has Q queries, which reach n places of a
frame. A context cell's number is its place among the C·h·w cells.
"""

import time
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

_BLOCK = 192  # queries, about: the product of so many is efficient, and few of them meet places beyond their reach
_LOW_PRECISION = torch.bfloat16
_ROUNDING_BOUND = (
    3.25 * torch.finfo(_LOW_PRECISION).eps / 2
)  # of a query, a key and their product, and some for the sum
_MAX_CANDIDATES = 256  # candidates of a query; one with more is sooner compared with all
_CHANNELS = 64  # with fewer the product is not what takes the time


class CellMatches(NamedTuple):
    """The most similar context cells of each cell: similarity and number, both (h, w, k), best first.

    Where fewer than k cells are within reach the similarity is -inf.
    """

    similarity: Tensor
    indices: Tensor


@torch.no_grad()
def find_nearest_cells(
    query: Tensor,
    context: Tensor,
    *,
    k: int,
    radius: int | None = None,
    circular: bool = False,
    use_bf16_prefilter: bool | None = None,
) -> CellMatches:
    """The k most similar of the context cells within reach, by the inner product.

    query: (h, w, D) and context: (C, h, w, D); L2-normalised, the similarity is cosine.
    radius: how many rows and columns away a cell may lie; None reaches everywhere.
    circular: within reach is what lies nearer than `radius` in Euclidean distance.
    use_bf16_prefilter: whether products of shorter floats go first, for the same matches; None is where a trial found it faster.
    """
    h, w, d = query.shape
    c = len(context)
    if context.shape[1:] != query.shape or c == 0:
        raise StillmotionError(
            f"the query is {tuple(query.shape)} and the context {tuple(context.shape)}; the context must be frames of "
            "the query's shape"
        )
    if not 0 < k <= c * h * w or (radius is not None and radius < circular):
        raise StillmotionError(
            f"k is {k} and radius {radius} in a context of {c * h * w} cells; choose k from 1 to {c * h * w} and a "
            f"radius of at least {int(circular)}"
        )
    if use_bf16_prefilter is None:
        use_bf16_prefilter = d >= _CHANNELS and _bf16_is_faster(query.device, query.dtype)
    number = torch.arange(h * w, device=query.device).view(h, w)
    asking, frames = query, context
    if h <= w:  # blocks are slices of the first axis, the longer one, so that what they reach lies together
        asking, frames, number = asking.transpose(0, 1), frames.transpose(1, 2), number.T
    keys = frames.to(_LOW_PRECISION if use_bf16_prefilter else query.dtype, memory_format=torch.contiguous_format)
    error = _ROUNDING_BOUND * asking.norm(dim=-1) * context.norm(dim=-1).max() if use_bf16_prefilter else None
    every, first = context.reshape(-1, d), torch.arange(c, device=query.device)[:, None] * (h * w)
    best = query.new_empty(max(h, w), min(h, w), k)
    cell = torch.empty_like(best, dtype=torch.long)
    long, wide = number.shape
    for block in _blocks(long, wide, radius):
        reach = _reachable_range(block[0], long, radius), _reachable_range(block[1], wide, radius)
        of_block, near = asking[block].reshape(-1, d), keys[:, *reach].reshape(c, -1, d)
        far = _out_of_reach(block, reach, radius, circular=circular, device=query.device)
        cells = (first + number[reach].reshape(-1)).reshape(-1)
        if error is None:
            values, place = _topk(_products(of_block, near), far, k)
            found = cells[place]
        else:
            coarse = _products(of_block.to(_LOW_PRECISION), near)
            values, found = _refine_topk(coarse, error[block].reshape(-1), far, of_block, every, cells, k)
        best[block], cell[block] = values.view_as(best[block]), found.view_as(cell[block])
    return CellMatches(best.transpose(0, 1), cell.transpose(0, 1)) if h <= w else CellMatches(best, cell)


def merge_matches(first: CellMatches, second: CellMatches, *, offset: int) -> CellMatches:
    """The best of two searches for as many matches; `offset` is added to the second's cell numbers."""
    values, place = torch.cat([first.similarity, second.similarity], -1).topk(first.indices.shape[-1], -1)
    return CellMatches(values, torch.cat([first.indices, second.indices + offset], -1).gather(-1, place))


def propagate_labels(labels: Tensor, matches: CellMatches, *, temperature: float) -> Tensor:
    """Labels (h, w, L): the mean of the matched cells' labels, weighted by the softmax of their similarity.

    labels: (C, h, w, L) of the context.
    """
    weight = (matches.similarity / temperature).softmax(-1)
    return (weight[..., None, :] @ labels.flatten(0, 2)[matches.indices])[..., 0, :]


def _products(asking: Tensor, keys: Tensor) -> Tensor:
    """Inner products of queries (Q, D) with the places of each frame (C, n, D): (C, Q, n)."""
    found = asking.new_empty(len(keys), len(asking), keys.shape[1])
    for frame, out in zip(keys, found, strict=True):
        torch.mm(asking, frame.mT, out=out)
    return found


def _topk(similarity: Tensor, far: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best of similarities (C, Q, n), and where they are among the C·n, each (Q, k); -inf where there are fewer.

    They are in the k places that are best in some frame, so that only those are looked at in all frames.
    """
    c, _, n = similarity.shape
    some, place = _max_over_frames(similarity).masked_fill(far, -torch.inf).topk(min(k, n), -1)
    each = similarity.gather(2, place.expand(c, -1, -1)).masked_fill(some == -torch.inf, -torch.inf)
    values, order = each.transpose(0, 1).flatten(1).topk(min(k, c * place.shape[1]), -1)
    width = place.shape[1]
    place = order // width * n + place.gather(1, order % width)
    missing = (0, k - values.shape[1])
    return F.pad(values, missing, value=-torch.inf), F.pad(place, missing)


def _max_over_frames(similarity: Tensor) -> Tensor:
    """The largest of each place over the frames, (Q, n); of short floats, 0 where all are negative.

    Short floats above 0 are in the order of the integers they are stored as, which are compared much faster.
    """
    if similarity.dtype != _LOW_PRECISION:
        return similarity.amax(0)
    return similarity.view(torch.int16).amax(0).clamp_min(0).view(_LOW_PRECISION)


def _refine_topk(
    coarse: Tensor, error: Tensor, far: Tensor, asking: Tensor, every: Tensor, cells: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k best similarities of queries (Q, D) and their cells, each (Q, k), by a look at some of them only.

    coarse: (C, Q, n), each at most `error` (Q,) away from the similarity. every: (C·h·w, D), of which `cells` (C·n,)
    are within reach of the block.
    """
    c, q, n = coarse.shape
    # The k best have at least the k-th best coarse value less the error, so none is coarsely below that less the error.
    least = _topk(coarse, far, k)[0][:, -1].to(error) - 2 * error
    likely = (_max_over_frames(coarse) >= least[:, None]) & ~far
    crowded = likely.sum(-1) > _MAX_CANDIDATES
    asks, place = (likely & ~crowded[:, None]).nonzero().unbind(1)
    pair, frame = coarse[:, asks, place].T.ge(least[asks, None]).nonzero().unbind(1)
    asks, place = asks[pair], frame * n + place[pair]
    count = asks.bincount(minlength=q)
    crowded |= count > _MAX_CANDIDATES
    few = ~crowded[asks]
    asks, found, count = asks[few], cells[place[few]], count.masked_fill(crowded, 0)
    table = asking.new_full((q, max(k, int(count.max()))), -torch.inf)
    named = torch.zeros_like(table, dtype=torch.long)
    slot = torch.arange(len(asks), device=asks.device) - (count.cumsum(0) - count)[asks]
    table[asks, slot] = torch.linalg.vecdot(asking[asks], every[found])
    named[asks, slot] = found
    values, order = table.topk(k, -1)
    found = named.gather(1, order)
    if bool(crowded.any()):
        exact = _products(asking[crowded], every[cells].view(c, n, -1))
        values[crowded], place = _topk(exact, far[crowded], k)
        found[crowded] = cells[place]
    return values, found


@cache
def _bf16_is_faster(device: torch.device, kind: torch.dtype) -> bool:
    """Whether products of short floats clearly take less time there, in a trial of some milliseconds."""

    def seconds(kind: torch.dtype) -> float:
        some, taken = torch.ones(_BLOCK, 384, dtype=kind, device=device), []
        many = some.repeat(8, 1)
        for _ in range(6):
            start = time.perf_counter()
            float((some @ many.mT)[0, 0])  # waits for the device
            taken.append(time.perf_counter() - start)
        return min(taken)

    return seconds(_LOW_PRECISION) < 0.75 * seconds(kind)


def _blocks(length: int, width: int, radius: int | None) -> Iterator[tuple[slice, slice]]:
    """Blocks of queries that cover the frame; they part its width only where that leaves much of it out of reach."""
    parts = max(1, width // (2 * radius + 2)) if radius is not None else 1
    wide = -(-width // parts)
    long = -(-length // max(1, round(length * wide / _BLOCK)))
    for top in range(0, length, long):
        for left in range(0, width, wide):
            yield slice(top, min(length, top + long)), slice(left, min(width, left + wide))


def _reachable_range(part: slice, size: int, radius: int | None) -> slice:
    """The places of an axis within reach of some place in `part`."""
    return slice(0, size) if radius is None else slice(max(0, part.start - radius), min(size, part.stop + radius))


def _out_of_reach(
    block: tuple[slice, slice], reach: tuple[slice, slice], radius: int | None, *, circular: bool, device: torch.device
) -> Tensor:
    """Which places are out of reach of which queries, (Q, n)."""
    dy, dx = (
        torch.arange(q.start, q.stop, device=device)[:, None] - torch.arange(b.start, b.stop, device=device)
        for q, b in zip(block, reach, strict=True)
    )
    dy, dx = dy[:, None, :, None], dx[None, :, None, :]
    if radius is None:
        far = torch.zeros_like(dy + dx, dtype=torch.bool)
    else:
        far = dy.square() + dx.square() >= radius**2 if circular else (dy.abs() > radius) | (dx.abs() > radius)
    return far.flatten(2).flatten(0, 1)
