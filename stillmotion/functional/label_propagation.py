"""Top-k matching in context frames (restricted attention) and label averaging.

A block of queries is compared with the cells within its reach in each context frame. Where bfloat16 products are
faster, they are computed first, and all cells that may be among the k best within the rounding bound are compared again
in full precision, so the matches are those of full precision. Memory: one block and a copy of the context.

Shapes: C context frames of h×w cells, D channels, L labels, k matches; a block has Q queries with n cells of a frame
within reach. The index of a context cell counts all C·h·w cells.
"""

import time
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

_BLOCK = 192  # approximate queries per block: large enough for an efficient product, with few cells out of reach
_LOW_PRECISION = torch.bfloat16
_ROUNDING_BOUND = 3.25 * torch.finfo(_LOW_PRECISION).eps / 2  # of a query, a key, their product and the sum
_MAX_CANDIDATES = 256  # a query with more candidates is compared with all cells
_MIN_CHANNELS = 64  # with fewer, the product does not dominate the time


class CellMatches(NamedTuple):
    """Most similar context cells of each query cell, best first.

    Attributes:
        similarity: Similarities, (h, w, k); -inf where fewer than k cells are within reach.
        indices: Indices of the context cells, (h, w, k).
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
    """For each query cell, find the k most similar context cells within a spatial radius, by inner product.

    Args:
        query: Features of a frame, (h, w, D); L2-normalized, the similarity is cosine.
        context: Features of the context frames, (C, h, w, D).
        k: Number of matches.
        radius: Largest distance in rows and columns; None is unlimited.
        circular: Measure the distance in Euclidean norm, less than `radius`.
        use_bf16_prefilter: Compute bfloat16 products first; the matches are the same. None does so where a short trial
            finds it faster.

    Returns:
        Similarities and indices of the matches.

    Raises:
        StillmotionError: If the shapes do not match, or k or the radius is out of range.
    """
    h, w, d = query.shape
    c = len(context)
    if context.shape[1:] != query.shape or c == 0:
        raise StillmotionError(
            f"The query has shape {tuple(query.shape)}, so the context must be (frames, {h}, {w}, {d}); got "
            f"{tuple(context.shape)}."
        )
    if not 0 < k <= c * h * w or (radius is not None and radius < circular):
        raise StillmotionError(
            f"k is {k}; must be between 1 and the number of context cells, {c * h * w}. radius is {radius}; must be at "
            f"least {int(circular)}."
        )
    if use_bf16_prefilter is None:
        use_bf16_prefilter = d >= _MIN_CHANNELS and _bf16_is_faster(query.device, query.dtype)
    cell_index = torch.arange(h * w, device=query.device).view(h, w)
    queries, frames = query, context
    if h <= w:  # blocks are slices of the longer axis, which comes first, so that cells within reach are contiguous
        queries, frames, cell_index = queries.transpose(0, 1), frames.transpose(1, 2), cell_index.T
    keys = frames.to(_LOW_PRECISION if use_bf16_prefilter else query.dtype, memory_format=torch.contiguous_format)
    error = _ROUNDING_BOUND * queries.norm(dim=-1) * context.norm(dim=-1).max() if use_bf16_prefilter else None
    all_cells, frame_start = context.reshape(-1, d), torch.arange(c, device=query.device)[:, None] * (h * w)
    similarity = query.new_empty(max(h, w), min(h, w), k)
    indices = torch.empty_like(similarity, dtype=torch.long)
    length, width = cell_index.shape
    for block in _blocks(length, width, radius):
        reach = _reachable_range(block[0], length, radius), _reachable_range(block[1], width, radius)
        block_queries, near = queries[block].reshape(-1, d), keys[:, *reach].reshape(c, -1, d)
        far = _out_of_reach(block, reach, radius, circular=circular, device=query.device)
        cells = (frame_start + cell_index[reach].reshape(-1)).reshape(-1)
        if error is None:
            values, order = _topk(_products(block_queries, near), far, k)
            matches = cells[order]
        else:
            coarse = _products(block_queries.to(_LOW_PRECISION), near)
            values, matches = _refine_topk(coarse, error[block].reshape(-1), far, block_queries, all_cells, cells, k)
        similarity[block], indices[block] = values.view_as(similarity[block]), matches.view_as(indices[block])
    if h <= w:
        return CellMatches(similarity.transpose(0, 1), indices.transpose(0, 1))
    return CellMatches(similarity, indices)


def merge_matches(first: CellMatches, second: CellMatches, *, offset: int) -> CellMatches:
    """Merge two searches for k matches each into the k best of both.

    Args:
        first: Matches in the first part of the context.
        second: Matches in the second part.
        offset: Number of cells of the first part, which is added to the indices of the second.

    Returns:
        The merged matches.
    """
    values, order = torch.cat([first.similarity, second.similarity], -1).topk(first.indices.shape[-1], -1)
    return CellMatches(values, torch.cat([first.indices, second.indices + offset], -1).gather(-1, order))


def propagate_labels(labels: Tensor, matches: CellMatches, *, temperature: float) -> Tensor:
    """Average the labels of matched cells, weighted by a softmax of their similarities.

    Args:
        labels: Labels of the context, (C, h, w, L).
        matches: Matches of `find_nearest_cells`.
        temperature: Temperature of the softmax.

    Returns:
        Labels, (h, w, L).
    """
    weight = (matches.similarity / temperature).softmax(-1)
    return (weight[..., None, :] @ labels.flatten(0, 2)[matches.indices])[..., 0, :]


def _products(queries: Tensor, keys: Tensor) -> Tensor:
    """Inner products (C, Q, n) of queries (Q, D) with the cells of each frame (C, n, D)."""
    products = queries.new_empty(len(keys), len(queries), keys.shape[1])
    for frame, out in zip(keys, products, strict=True):
        torch.mm(queries, frame.mT, out=out)
    return products


def _topk(similarity: Tensor, far: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest similarities (C, Q, n) and their indices among the C·n, each (Q, k), padded with -inf.

    They lie at the k positions that are best in any frame, so only those are compared in all frames.
    """
    c, _, n = similarity.shape
    largest, position = _max_over_frames(similarity).masked_fill(far, -torch.inf).topk(min(k, n), -1)
    candidates = similarity.gather(2, position.expand(c, -1, -1)).masked_fill(largest == -torch.inf, -torch.inf)
    values, order = candidates.transpose(0, 1).flatten(1).topk(min(k, c * position.shape[1]), -1)
    width = position.shape[1]
    index = order // width * n + position.gather(1, order % width)
    missing = (0, k - values.shape[1])
    return F.pad(values, missing, value=-torch.inf), F.pad(index, missing)


def _max_over_frames(similarity: Tensor) -> Tensor:
    """Largest similarity of each position over the frames, (Q, n); in bfloat16, 0 where all are negative.

    Positive bfloat16 numbers sort like the integers with the same bits, which are compared much faster.
    """
    if similarity.dtype != _LOW_PRECISION:
        return similarity.amax(0)
    return similarity.view(torch.int16).amax(0).clamp_min(0).view(_LOW_PRECISION)


def _refine_topk(
    coarse: Tensor, error: Tensor, far: Tensor, queries: Tensor, all_cells: Tensor, cells: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k largest similarities of queries (Q, D) and their cells, each (Q, k), computed for candidates only.

    coarse: (C, Q, n), each within `error` (Q,) of the similarity. all_cells: (C·h·w, D), of which `cells` (C·n,) are
    within reach of the block.
    """
    c, q, n = coarse.shape
    # The k best are at least the k-th best coarse value minus the error, so their coarse values are above this.
    threshold = _topk(coarse, far, k)[0][:, -1].to(error) - 2 * error
    is_candidate = (_max_over_frames(coarse) >= threshold[:, None]) & ~far
    crowded = is_candidate.sum(-1) > _MAX_CANDIDATES
    query, position = (is_candidate & ~crowded[:, None]).nonzero().unbind(1)
    pair, frame = coarse[:, query, position].T.ge(threshold[query, None]).nonzero().unbind(1)
    query, position = query[pair], frame * n + position[pair]
    count = query.bincount(minlength=q)
    crowded |= count > _MAX_CANDIDATES
    few = ~crowded[query]
    query, candidates, count = query[few], cells[position[few]], count.masked_fill(crowded, 0)
    table = queries.new_full((q, max(k, int(count.max()))), -torch.inf)
    table_cells = torch.zeros_like(table, dtype=torch.long)
    slot = torch.arange(len(query), device=query.device) - (count.cumsum(0) - count)[query]
    table[query, slot] = torch.linalg.vecdot(queries[query], all_cells[candidates])
    table_cells[query, slot] = candidates
    values, order = table.topk(k, -1)
    matches = table_cells.gather(1, order)
    if bool(crowded.any()):
        exact = _products(queries[crowded], all_cells[cells].view(c, n, -1))
        values[crowded], index = _topk(exact, far[crowded], k)
        matches[crowded] = cells[index]
    return values, matches


@cache
def _bf16_is_faster(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether bfloat16 products are clearly faster on a device, by a trial of some milliseconds."""

    def min_seconds(dtype: torch.dtype) -> float:
        queries, seconds = torch.ones(_BLOCK, 384, dtype=dtype, device=device), []
        keys = queries.repeat(8, 1)
        for _ in range(6):
            start = time.perf_counter()
            float((queries @ keys.mT)[0, 0])  # waits for the device
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    return min_seconds(_LOW_PRECISION) < 0.75 * min_seconds(dtype)


def _blocks(length: int, width: int, radius: int | None) -> Iterator[tuple[slice, slice]]:
    """Yield blocks of queries that cover the frame; they divide its width only if much of it is out of reach then."""
    parts = max(1, width // (2 * radius + 2)) if radius is not None else 1
    block_width = -(-width // parts)
    block_length = -(-length // max(1, round(length * block_width / _BLOCK)))
    for top in range(0, length, block_length):
        for left in range(0, width, block_width):
            yield slice(top, min(length, top + block_length)), slice(left, min(width, left + block_width))


def _reachable_range(part: slice, size: int, radius: int | None) -> slice:
    """Positions of an axis within reach of any position in `part`."""
    return slice(0, size) if radius is None else slice(max(0, part.start - radius), min(size, part.stop + radius))


def _out_of_reach(
    block: tuple[slice, slice], reach: tuple[slice, slice], radius: int | None, *, circular: bool, device: torch.device
) -> Tensor:
    """Mask (Q, n) of positions that are out of reach of a query."""
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
