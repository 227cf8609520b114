"""Exact cosine k-NN and average precision, in blocks of queries; L2 normalization of arrays.

Shapes: q queries, r references, m channels; vectors have any scale.
"""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

# Similarities in a block: more do not fit into the processor's cache, fewer make the matrix product inefficient.
MAX_SIMILARITIES = 1 << 22
_MIN_QUERY_ROWS = 32
_TIE_BREAK_SCALE = 1e-30  # far below any difference of cosines


def l2_normalize(x: np.ndarray, axis: int = -1, *, eps: float = 1e-12) -> np.ndarray:
    """Scale vectors of a NumPy array to unit length; for tensors use `torch.nn.functional.normalize`.

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
    """Exact k-nearest-neighbor search by cosine similarity, in blocks.

    Ties are broken by index. Zero vectors have no direction, and indices often follow labels, so a zero query gets
    references in random, fixed order, and zero references are ranked in random, fixed order.

    Args:
        queries: Vectors, (q, m).
        references: Vectors, (r, m).
        k: Number of neighbors.
        self_index: Index of the reference that is the query itself and is excluded, (q,); -1 for none.
        max_similarities: Similarities computed at a time.

    Returns:
        Cosines and reference indices, each (q, k), best first.

    Raises:
        StillmotionError: If k exceeds the number of references.
    """
    available = len(references) - (self_index is not None)
    if not 0 < k <= available:
        raise StillmotionError(f"k is {k}; must be between 1 and the number of references, {available}.")
    similarities = queries.new_empty(len(queries), k)
    neighbors = torch.empty(len(queries), k, dtype=torch.long, device=queries.device)
    for rows, cosines in _iter_cosines(queries, references, self_index, max_similarities):
        # The (k+1)-th tells whether a tie is cut in two.
        best, indices = cosines.topk(min(k + 1, len(references)))
        indices, order = indices.sort(dim=1)
        best, order = best.gather(1, order).sort(dim=1, descending=True, stable=True)
        indices = indices.gather(1, order)
        if k < len(references):
            cut = (best[:, k - 1] == best[:, k]).nonzero()[:, 0]
            if len(cut):
                best[cut, :k], indices[cut, :k] = (x[:, :k] for x in cosines[cut].sort(descending=True, stable=True))
        similarities[rows], neighbors[rows] = best[:, :k], indices[:, :k]
    return similarities, neighbors


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
    """Average precision of each query's ranking of the references by cosine.

    Args:
        queries: Vectors, (q, m).
        references: Vectors, (r, m).
        query_labels: Labels, (q,).
        reference_labels: Labels, (r,).
        self_index: As in `knn_search`; ties are ranked as there.
        max_similarities: As in `knn_search`.

    Returns:
        Average precision, float64 (q,); 0 where no reference has the query's label.
    """
    precisions = torch.zeros(len(queries), dtype=torch.float64, device=queries.device)
    ranks = torch.arange(1, len(references) + 1, device=queries.device, dtype=torch.float64)
    for rows, cosines in _iter_cosines(queries, references, self_index, max_similarities):
        cosines, order = cosines.sort(descending=True, stable=True)
        relevant = (reference_labels[order] == query_labels[rows, None]) & (cosines > -torch.inf)
        precision = relevant.cumsum(1) / ranks
        precisions[rows] = (precision * relevant).sum(1) / relevant.sum(1).clamp(min=1)
    return precisions


def _iter_cosines(
    queries: Tensor, references: Tensor, self_index: Tensor | None, max_similarities: int
) -> Iterator[tuple[slice, Tensor]]:
    """Yield cosines of blocks of queries to all references: -inf for the query itself, random for zero vectors."""
    zero_query, zero_reference = ~queries.any(1), ~references.any(1)
    has_zeros = bool(zero_query.any() or zero_reference.any())
    generator = torch.Generator(queries.device).manual_seed(0)
    queries, references = F.normalize(queries, dim=-1), F.normalize(references, dim=-1).mT
    height = max(_MIN_QUERY_ROWS, max_similarities // max(references.shape[1], 1))
    for start in range(0, len(queries), height):
        rows = slice(start, min(start + height, len(queries)))
        cosines = queries[rows] @ references
        if has_zeros:
            noise = torch.rand(cosines.shape, generator=generator, device=cosines.device) * _TIE_BREAK_SCALE
            cosines = torch.where(zero_query[rows, None] | zero_reference, noise.to(cosines.dtype), cosines)
        if self_index is not None:
            own_reference = self_index[rows]
            has_reference = (own_reference >= 0).nonzero()[:, 0]
            cosines[has_reference, own_reference[has_reference]] = -torch.inf
        yield rows, cosines
