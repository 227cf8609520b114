"""Top-k matching in context frames (restricted attention) and label averaging.

A block of queries is compared with the cells within its reach in each context frame. Where products of 16-bit floats or
8-bit integers are faster, they are computed first, and all cells that may be among the k best of any query of the
block, within the bound of the rounding error, are compared again in full precision, so the matches are those of full
precision. Memory: one block and a copy of the context.

Shapes: C context frames of h×w cells, D channels, L labels, k matches; a block has Q queries with n cells of a frame
within reach. The index of a context cell counts all C·h·w cells.
"""

import time
from collections.abc import Iterator
from functools import cache
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

_BLOCK = 96  # approximate queries per block: large enough for an efficient product, with few cells out of reach
_CHUNK = 512  # cells that are rounded at a time, so that they stay in the cache
_ERROR_MARGIN = 1.01  # of the rounding error of products, for that of full precision
_MIN_CHANNELS = 64  # with fewer, the product does not dominate the time
# Types of a prefilter, with the largest norm of a 16-bit cell, whose products stay below the largest float16, and the
# largest value of an 8-bit cell.
_PREFILTER_RANGES = {torch.float16: 128.0, torch.bfloat16: 128.0, torch.int8: 127.0}
_MIN_PREFILTER_SPEEDUP = 2.0  # of products; rounding costs time, too
_TRIAL_SECONDS = 0.02  # at most, of each type: a CPU without instructions for a type is slow
# Time to gather a cell and compare it again, as a multiple of its product in full precision, and times the cells that
# remain, as a multiple of those that remain in one frame of a trial. Measured on real tokens.
_CHECK_COST = 2.5


class CellMatches(NamedTuple):
    """Most similar context cells of each query cell, best first.

    Attributes:
        similarity: Similarities, (h, w, k); -inf where fewer than k cells are within reach.
        indices: Indices of the context cells, (h, w, k).
    """

    similarity: Tensor
    indices: Tensor


class _RoundedCells(NamedTuple):
    """Cells (M, D), multiplied by a factor and rounded; the largest norm of a scaled cell and of its rounding error."""

    values: Tensor
    factor: Tensor
    norm: Tensor
    error: Tensor


@torch.no_grad()
def find_nearest_cells(
    query: Tensor,
    context: Tensor,
    *,
    k: int,
    radius: int | None = None,
    circular: bool = False,
    prefilter_dtype: torch.dtype | Literal["auto"] | None = "auto",
) -> CellMatches:
    """For each query cell, find the k most similar context cells within a spatial radius, by inner product.

    Args:
        query: Features of a frame, (h, w, D); L2-normalized, the similarity is cosine.
        context: Features of the context frames, (C, h, w, D).
        k: Number of matches.
        radius: Largest distance in rows and columns; None is unlimited.
        circular: Measure the distance in Euclidean norm, less than `radius`.
        prefilter_dtype: Compute products of this type first (CPU only): float16, bfloat16 or int8; None does not. The
            matches are the same. auto estimates the time of each from a short trial of its speed on this CPU and from
            the cells of one frame that it leaves to compare again.

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
    if prefilter_dtype == "auto":
        use_prefilter = d >= _MIN_CHANNELS and query.device.type == "cpu"
        prefilter_dtype = _choose_prefilter(query, context, k) if use_prefilter else None
    cell_index = torch.arange(h * w, device=query.device).view(h, w)
    all_cells, queries, keys, rounded = context.reshape(-1, d), query, context, None
    if prefilter_dtype:
        rounded = _round_cells(all_cells, prefilter_dtype)
        keys = rounded.values.view(context.shape)
    if h <= w:  # blocks are slices of the longer axis, which comes first, so that cells within reach are contiguous
        queries, keys, cell_index = queries.transpose(0, 1), keys.transpose(1, 2).contiguous(), cell_index.T
    frame_start = torch.arange(c, device=query.device)[:, None] * (h * w)
    similarity = query.new_empty(max(h, w), min(h, w), k)
    indices = torch.empty_like(similarity, dtype=torch.long)
    length, width = cell_index.shape
    for block in _blocks(length, width, radius):
        reach = _reachable_range(block[0], length, radius), _reachable_range(block[1], width, radius)
        block_queries, near = queries[block].reshape(-1, d), keys[:, *reach].reshape(c, -1, d)
        far = _out_of_reach(block, reach, radius, circular=circular, device=query.device)
        cells = (frame_start + cell_index[reach].reshape(-1)).reshape(-1)
        if rounded is not None:
            penalty = far.to(query.dtype).mul_(torch.finfo(query.dtype).min)
            chosen = _possible_matches(block_queries, near, rounded, penalty, k, all_cells, cells)
            values, order = _exact_topk(block_queries, all_cells[cells[chosen]], penalty.mT[chosen % far.shape[1]], k)
            matches = cells[chosen[order]]
        else:
            values, order = _topk(_products(block_queries, near), far, k)
            matches = cells[order]
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
    largest, position = similarity.amax(0).masked_fill(far, -torch.inf).topk(min(k, n), -1)
    candidates = similarity.gather(2, position.expand(c, -1, -1)).masked_fill(largest == -torch.inf, -torch.inf)
    values, order = candidates.transpose(0, 1).flatten(1).topk(min(k, c * position.shape[1]), -1)
    width = position.shape[1]
    index = order // width * n + position.gather(1, order % width)
    missing = (0, k - values.shape[1])
    return F.pad(values, missing, value=-torch.inf), F.pad(index, missing)


def _possible_matches(
    queries: Tensor,
    keys: Tensor,
    rounded: _RoundedCells,
    penalty: Tensor,
    k: int,
    context: Tensor,
    cells: Tensor,
) -> Tensor:
    """Indices among the C·n cells of those that may be among the k most similar ones of any query.

    queries: (Q, D). keys: (C, n, D), some of the values of `rounded`. penalty: (Q, n), added to the similarity: the
    least number where a position is out of reach, 0 elsewhere. cells: indices (C·n,) of the keys among `context`
    (M, D), the cells in full precision.
    """
    c, n, d = keys.shape
    own = _round_cells(queries, keys.dtype, per_cell=True)
    # |x·y − x'·y'| ≤ |x − x'|·|y| + |x'|·|y − y'|, in the scales of both.
    error = own.error * rounded.norm + (own.norm + own.error) * rounded.error
    products_dtype, multiply = torch.int32, torch._int_mm
    if keys.dtype.is_floating_point:
        # Rounding of the sum, of the product and (half of its unit more) of the threshold below.
        unit = d * torch.finfo(torch.float32).eps + 0.75 * torch.finfo(keys.dtype).eps
        error = error + unit * own.norm * rounded.norm
        products_dtype, multiply = keys.dtype, torch.mm
    error = _ERROR_MARGIN * error
    products, query_columns = torch.empty(c, n, len(queries), dtype=products_dtype), own.values.mT.contiguous()
    for frame, out in zip(keys, products, strict=True):
        multiply(frame, query_columns, out=out)
    # The k largest products lie at the k positions that are best in any frame. The least of their exact similarities
    # is a lower bound of the k-th best. float32 holds products below 2^24 exactly.
    best = penalty + products.amax(0).mT.contiguous()
    position = best.topk(min(k, n), -1).indices
    candidates = products.gather(1, position.mT.expand(c, -1, -1)) + penalty.gather(1, position).mT
    order = candidates.flatten(0, 1).mT.topk(min(k, c * position.shape[1]), -1).indices
    frame, position = order // position.shape[1], position.gather(1, order % position.shape[1])
    similarity = (context[cells[frame * n + position]] @ queries[:, :, None])[:, :, 0] + penalty.gather(1, position)
    least = own.factor * rounded.factor * similarity.amin(-1) - error
    if not keys.dtype.is_floating_point:
        least = least.clamp_min(torch.iinfo(torch.int32).min // 2).floor()
    query, position = (best >= least[:, None]).nonzero(as_tuple=True)
    frame, pair = (products[:, position, query] >= least[query].to(products_dtype)).nonzero(as_tuple=True)
    is_possible = torch.zeros(c * n, dtype=torch.bool)
    is_possible[frame * n + position[pair]] = True
    return is_possible.nonzero()[:, 0]


def _choose_prefilter(query: Tensor, context: Tensor, k: int) -> torch.dtype | None:
    """Type with the least estimated time of a product, with the comparison of what remains in full precision."""
    full_seconds = _min_product_seconds(query.dtype)
    seconds: dict[torch.dtype | None, float] = {None: full_seconds}
    for dtype in _PREFILTER_RANGES:
        product_seconds = _min_product_seconds(dtype)
        if product_seconds * _MIN_PREFILTER_SPEEDUP < full_seconds:
            seconds[dtype] = product_seconds + _CHECK_COST * full_seconds * _possible_fraction(query, context, k, dtype)
    return min(seconds, key=seconds.__getitem__)


def _possible_fraction(query: Tensor, context: Tensor, k: int, dtype: torch.dtype) -> float:
    """Fraction of the cells of the last context frame that may be a match of any of the first queries."""
    queries, cells = query.flatten(0, 1)[:_BLOCK], context[-1].flatten(0, 1)
    rounded, penalty = _round_cells(cells, dtype), queries.new_zeros(len(queries), len(cells))
    share = -(-k // len(context))  # of the k matches that lie in one frame
    possible = _possible_matches(
        queries, rounded.values[None], rounded, penalty, share, cells, torch.arange(len(cells))
    )
    return len(possible) / len(cells)


def _exact_topk(queries: Tensor, keys: Tensor, penalty: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest similarities of queries (Q, D) to keys (U, D), and their indices; penalty: (U, Q)."""
    values, order = torch.addmm(penalty, keys, queries.mT).mT.contiguous().topk(min(k, len(keys)), -1)
    values = values.masked_fill(values < torch.finfo(values.dtype).min / 2, -torch.inf)
    missing = (0, k - values.shape[1])
    return F.pad(values, missing, value=-torch.inf), F.pad(order, missing)


def _round_cells(cells: Tensor, dtype: torch.dtype, *, per_cell: bool = False) -> _RoundedCells:
    """Scale cells (M, D), all alike or each by itself, and round them; norm and error are (M,) or of all cells."""
    is_float, info = dtype.is_floating_point, torch.finfo(cells.dtype)
    chunks = cells.split(_CHUNK)
    sizes = torch.cat([rows.norm(dim=-1) if is_float else rows.abs().amax(-1) for rows in chunks])[:, None]
    largest = sizes if per_cell else sizes.amax(0, keepdim=True).expand_as(sizes)
    factors = _PREFILTER_RANGES[dtype] / largest.clamp_min(info.tiny)
    values = torch.empty(cells.shape, dtype=dtype)
    norms, errors = [], []
    for rows, factor, size, out in zip(*(x.split(_CHUNK) for x in (cells, factors, sizes, values)), strict=True):
        scaled = rows * factor
        out.copy_(scaled if is_float else scaled.round())
        norms.append(size[:, 0] * factor[:, 0] if is_float else scaled.norm(dim=-1))
        errors.append(scaled.sub_(out).norm(dim=-1))
    norm, error = torch.cat(norms), torch.cat(errors)
    if per_cell:
        return _RoundedCells(values, factors[:, 0], norm, error)
    return _RoundedCells(values, factors[0, 0], norm.max(), error.max())


@cache
def _min_product_seconds(dtype: torch.dtype) -> float:
    """Least time of a product of cells of this type with a block of queries."""
    queries, cells = torch.ones(384, _BLOCK, dtype=dtype), torch.ones(8 * _BLOCK, 384, dtype=dtype)
    multiply = torch.mm if dtype.is_floating_point else torch._int_mm
    seconds: list[float] = []
    while len(seconds) < 6 and sum(seconds) < _TRIAL_SECONDS:
        start = time.perf_counter()
        multiply(cells, queries)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


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
