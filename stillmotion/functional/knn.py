"""Exact search by cosine, a block of queries at a time: the whole matrix of similarities is never held.

Shapes: q queries, r references, m channels; vectors have any scale."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError


MAX_SIMILARITIES = (
    1 << 22
)  # similarities held at a time: more leave the processor's cache, fewer starve the matrix product
_MIN_QUERY_ROWS = 32
_TIE_BREAK_SCALE = 1e-30  # a cosine that tells none but equals apart


def l2_normalize(x: np.ndarray, axis: int = -1, *, eps: float = 1e-12) -> np.ndarray:
    """Scale vectors of a NumPy array to unit length; tensors have `torch.nn.functional.normalize`.

    Args:
        x: Vectors, any shape.
        axis: Axis of the channels.
        eps: Smallest norm to divide by, so that zero vectors stay zero.

    Returns:
        Array of the same shape.
    """
    return x / np.maximum(np.linalg.norm(x, axis=axis, keepdims=True), eps)


@torch.no_grad()
def knn_search(
    queries: Tensor,
    references: Tensor,
    *,
    k: int,
    self_index: Tensor | None = None,
    max_similarities: int = MAX_SIMILARITIES,
) -> tuple[Tensor, Tensor]:
    """The k references most alike to each query, best first: their cosines and their numbers, (q, k) each.

    self_index: (q,), the number of the reference that a query is itself, which is passed over; -1 where it is none.
    Of equally similar references the one with the lower number comes first. A vector of zeros is like no other, and
    numbers often follow labels: a query of zeros is given references in an order that is drawn, the same every time,
    and so are references of zeros to any query.
    """
    available = len(references) - (self_index is not None)
    if not 0 < k <= available:
        raise StillmotionError(f"k is {k}; among {available} references it lies between 1 and {available}")
    similarities = queries.new_empty(len(queries), k)
    numbers = torch.empty(len(queries), k, dtype=torch.long, device=queries.device)
    for rows, cosines in _iter_cosines(queries, references, self_index, max_similarities):
        # One more than asked for tells whether a tie was cut in two.
        best, found = cosines.topk(min(k + 1, len(references)))
        found, order = found.sort(dim=1)
        best, order = best.gather(1, order).sort(dim=1, descending=True, stable=True)
        found = found.gather(1, order)
        if k < len(references):
            cut = (best[:, k - 1] == best[:, k]).nonzero()[:, 0]
            if len(cut):
                best[cut, :k], found[cut, :k] = (x[:, :k] for x in cosines[cut].sort(descending=True, stable=True))
        similarities[rows], numbers[rows] = best[:, :k], found[:, :k]
    return similarities, numbers


@torch.no_grad()
def retrieval_average_precision(
    queries: Tensor,
    references: Tensor,
    query_labels: Tensor,
    reference_labels: Tensor,
    *,
    self_index: Tensor | None = None,
    max_similarities: int = MAX_SIMILARITIES,
) -> Tensor:
    """Each query's mean precision at the ranks of the references with its label (q,), as float64; 0 where none has.

    self_index: as in `top_k`; ties are ranked as there.
    """
    found = torch.zeros(len(queries), dtype=torch.float64, device=queries.device)
    ranks = torch.arange(1, len(references) + 1, device=queries.device, dtype=torch.float64)
    for rows, cosines in _iter_cosines(queries, references, self_index, max_similarities):
        cosines, order = cosines.sort(descending=True, stable=True)
        relevant = (reference_labels[order] == query_labels[rows, None]) & (cosines > -torch.inf)
        precision = relevant.cumsum(1) / ranks
        found[rows] = (precision * relevant).sum(1) / relevant.sum(1).clamp(min=1)
    return found


def _iter_cosines(
    queries: Tensor, references: Tensor, self_index: Tensor | None, max_similarities: int
) -> Iterator[tuple[slice, Tensor]]:
    """The cosines of some queries to all references; a query's own reference has -inf, those to zeros a lot each."""
    nothing, none = ~queries.any(1), ~references.any(1)
    drawn = bool(nothing.any() or none.any())
    generator = torch.Generator(queries.device).manual_seed(0)
    queries, references = F.normalize(queries, dim=-1), F.normalize(references, dim=-1).mT
    height = max(_MIN_QUERY_ROWS, max_similarities // max(references.shape[1], 1))
    for start in range(0, len(queries), height):
        rows = slice(start, min(start + height, len(queries)))
        cosines = queries[rows] @ references
        if drawn:
            lots = torch.rand(cosines.shape, generator=generator, device=cosines.device) * _TIE_BREAK_SCALE
            cosines = torch.where(nothing[rows, None] | none, lots.to(cosines.dtype), cosines)
        if self_index is not None:
            mine = self_index[rows]
            known = (mine >= 0).nonzero()[:, 0]
            cosines[known, mine[known]] = -torch.inf
        yield rows, cosines
