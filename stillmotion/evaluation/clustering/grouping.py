"""Groups of vectors without labels; their number is that of the best silhouette score.

Shapes: N vectors of D channels.
"""

from collections.abc import Callable

import numpy as np

from stillmotion.evaluation.clustering.config import DistanceMetric

_MAX_GROUPS = 10


def choose_groups(
    vectors: np.ndarray,
    fit: Callable[[int], np.ndarray],
    *,
    max_groups: int,
    metric: DistanceMetric = "euclidean",
    min_score: float = -np.inf,
) -> tuple[int, np.ndarray] | None:
    """Choose the number of groups with the best silhouette score.

    Args:
        vectors: Vectors, (N, D).
        fit: Groups the vectors into a number of groups; returns the group of each, (N,).
        max_groups: Largest number of groups to try, from 2.
        metric: Distance of the silhouette score.
        min_score: Score that must be exceeded.

    Returns:
        The number of groups and the group of each vector, (N,); None if no grouping exceeds the score.
    """
    from sklearn.metrics import silhouette_score  # a second to import

    best = None
    for count in range(2, max_groups + 1):
        groups = fit(count)
        if len(np.unique(groups)) < 2:
            continue  # fewer distinct vectors than groups
        score = silhouette_score(vectors, groups, metric=metric)
        if score > min_score:
            min_score, best = score, (count, groups)
    return best


def sort_groups_by_size(groups: np.ndarray) -> np.ndarray:
    """Renumber groups (N,) so that the largest is 0."""
    order = np.argsort(-np.bincount(groups), kind="stable")
    return np.argsort(order)[groups]


def agglomerative_groups(vectors: np.ndarray, *, metric: DistanceMetric = "euclidean") -> np.ndarray:
    """Group vectors by average linkage.

    Args:
        vectors: At least 3 vectors, (N, D).
        metric: Distance.

    Returns:
        The group of each vector, (N,), the largest group first.
    """
    from sklearn.cluster import AgglomerativeClustering  # a second to import

    def fit(count: int) -> np.ndarray:
        return AgglomerativeClustering(count, metric=metric, linkage="average").fit_predict(vectors)

    best = choose_groups(vectors, fit, max_groups=min(_MAX_GROUPS, len(vectors) - 1), metric=metric)
    return sort_groups_by_size(np.zeros(len(vectors), np.int64) if best is None else best[1])


def central_rows(vectors: np.ndarray, mask: np.ndarray, *, max_rows: int) -> list[int]:
    """Return the rows of masked vectors that are nearest to their mean.

    Args:
        vectors: Vectors, (N, D).
        mask: Which vectors to look at, bool (N,).
        max_rows: Number of rows.

    Returns:
        The rows, nearest first.
    """
    rows = np.flatnonzero(mask)
    distances = np.linalg.norm(vectors[rows] - vectors[rows].mean(0), axis=1)
    return rows[np.argsort(distances, kind="stable")[:max_rows]].tolist()
