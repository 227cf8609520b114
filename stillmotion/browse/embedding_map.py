"""An index seen from above: places on a plane and groups, by look and by motion, without labels.

Shapes: n moments, D channels.
"""

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from stillmotion.evaluation.clustering.embedding_plot import tsne
from stillmotion.functional.knn import l2_normalize

if TYPE_CHECKING:
    from stillmotion.index import VideoIndex

VectorName = Literal["appearance", "motion"]
VECTOR_NAMES: tuple[VectorName, ...] = get_args(VectorName)

_PCA_COMPONENTS = 32  # principal ones, by which moments are laid out and grouped
_MAX_TSNE_SEGMENTS = 2000  # moments, by t-SNE, which takes seconds for so many; the others go where their nearest are
_MAX_SILHOUETTE_SEGMENTS = 2000  # moments that the number of groups is chosen on
_NUM_NEIGHBORS = 4
_MIN_SPACING, _MAX_PUSHES = (
    0.6,
    60,
)  # how far apart places are pushed, of the side of the square that each could have; how often
_MAX_GROUPS = 12
_MIN_SEGMENTS = 4  # moments, below which they are one group
_MIN_SILHOUETTE = 0.05  # silhouette, below which groups are of nobody's making but the algorithm's


@dataclass(frozen=True)
class EmbeddingMap:
    """Where moments lie, (n, 2) from 0 to 1, and to which group each belongs, (n,), the largest first."""

    coordinates: np.ndarray
    groups: np.ndarray


class EmbeddingMaps:
    """The planes of an index, each made when it is first asked for and then kept."""

    def __init__(self, index: "VideoIndex") -> None:
        self._index = index
        self._maps: dict[VectorName, EmbeddingMap] = {}
        self._one = threading.Lock()

    def map_for(self, vector_name: VectorName) -> EmbeddingMap:
        with self._one:
            if vector_name not in self._maps:
                vectors = pca_reduce(self._index.vectors(vector_name))
                self._maps[vector_name] = EmbeddingMap(layout_2d(vectors), kmeans_groups(vectors))
            return self._maps[vector_name]


def pca_reduce(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, D) of unit length by their 32 main directions at most."""
    from sklearn.decomposition import PCA  # a second to import

    unit = l2_normalize(vectors)
    directions = min(_PCA_COMPONENTS, *unit.shape)
    if len(unit) < 2 or directions == 0:
        return np.zeros((len(unit), 1), np.float32)
    return PCA(directions, svd_solver="randomized", random_state=0).fit_transform(unit).astype(np.float32)


def layout_2d(vectors: np.ndarray, *, max_tsne_points: int = _MAX_TSNE_SEGMENTS) -> np.ndarray:
    """Places (n, 2) between 0 and 1 on which near neighbours (n, D) stay near: by t-SNE, of few by their directions.

    max_tsne_points: beyond so many an even sample is laid out, and each of the others goes to the middle of its nearest in it.
    """
    if len(vectors) < _MIN_SEGMENTS:
        flat = np.zeros((len(vectors), 2))
        flat[:, : min(2, vectors.shape[1])] = vectors[:, :2]
        return _fit_unit_square(flat)
    chosen = np.unique(np.linspace(0, len(vectors) - 1, min(len(vectors), max_tsne_points)).round().astype(int))
    places = tsne(vectors[chosen])
    if len(chosen) < len(vectors):
        from sklearn.neighbors import NearestNeighbors

        nearest = NearestNeighbors(n_neighbors=_NUM_NEIGHBORS).fit(vectors[chosen])
        found = places[nearest.kneighbors(vectors, return_distance=False)].mean(1)
        found[chosen] = places
        places = found
    return _push_apart(_fit_unit_square(places))


def kmeans_groups(vectors: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """The group of each of n vectors (n, D) by k-means; their number is that of the best silhouette, 2 to 12.

    Where no number of groups stands apart, all are one group.
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    one = np.zeros(len(vectors), int)
    if len(vectors) < _MIN_SEGMENTS or not vectors.std(0).any():
        return one
    judged = vectors[np.random.default_rng(seed).permutation(len(vectors))[:_MAX_SILHOUETTE_SEGMENTS]]
    best, score = 1, _MIN_SILHOUETTE
    for count in range(2, min(_MAX_GROUPS, len(judged) // 2) + 1):
        labels = KMeans(count, n_init=4, random_state=seed).fit_predict(judged)
        if len(np.unique(labels)) < 2:
            continue  # fewer different vectors than groups
        found = silhouette_score(judged, labels)
        if found > score:
            best, score = count, found
    if best == 1:
        return one
    labels = KMeans(best, n_init=4, random_state=seed).fit_predict(vectors)
    order = np.argsort(-np.bincount(labels, minlength=best), kind="stable")
    return np.argsort(order)[labels]


def _push_apart(places: np.ndarray) -> np.ndarray:
    """Places pushed apart where they lie on each other, so that pictures can be seen; far ones stay as they are."""
    from scipy.spatial import cKDTree

    apart = _MIN_SPACING / np.sqrt(len(places))
    # Those at the very same place need a direction to part in.
    places = places + np.random.default_rng(0).uniform(-1e-4, 1e-4, places.shape)
    for _ in range(_MAX_PUSHES):
        pairs = cKDTree(places).query_pairs(apart, output_type="ndarray")
        if len(pairs) == 0:
            break
        one, other = pairs.T
        between = places[one] - places[other]
        far = np.linalg.norm(between, axis=1, keepdims=True)
        push = 0.25 * (apart - far) * between / np.maximum(far, 1e-9)
        np.add.at(places, one, push)
        np.add.at(places, other, -push)
    return _fit_unit_square(places)


def _fit_unit_square(places: np.ndarray) -> np.ndarray:
    """Places moved and shrunk, alike in both directions, so that they fill the unit square."""
    if len(places) == 0:
        return places
    low, high = places.min(0), places.max(0)
    wide = float((high - low).max())
    return (places - (low + high) / 2) / wide + 0.5 if wide > 0 else np.full_like(places, 0.5)
