"""2-D maps (t-SNE) and groups of the segments of an index, by appearance and by motion.

By motion, where an index has motion fields, segments are first linked to their nearest neighbors under alignment, and
that graph is embedded by its eigenvectors: k-means in them is spectral clustering.

Shapes: n segments, D channels.
"""

import threading
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from stillmotion.evaluation.clustering.embedding_plot import tsne
from stillmotion.evaluation.clustering.grouping import choose_groups, sort_groups_by_size
from stillmotion.functional.knn import l2_normalize
from stillmotion.functional.motion_alignment import NUM_NEIGHBORS, aligned_similarity
from stillmotion.index.motion_fields import unflatten_fields
from stillmotion.index.video_segments import VectorName

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from stillmotion.index import VideoIndex

_PCA_COMPONENTS = 32
_MAX_TSNE_SEGMENTS = 2000  # t-SNE takes seconds for so many; the others are placed between their neighbors
_MAX_GRAPH_SEGMENTS = 2000  # segments that are linked to their neighbors; the others take the place of theirs
_GRAPH_CANDIDATES = 32  # segments by amplitude spectrum that are compared under alignment
_GRAPH_COMPONENTS = 10
_MAX_SILHOUETTE_SEGMENTS = 2000  # segments that the number of groups is chosen on
_NUM_NEAREST_IN_SAMPLE = 4
_MIN_SPACING = 0.6  # minimum distance of two points, relative to the side of the square that each could have
_MAX_PUSHES = 60
_MAX_GROUPS = 12
_MIN_SEGMENTS = 4  # fewer segments are one group
_MIN_SILHOUETTE = 0.05  # below this silhouette score, groups are an artifact of the algorithm
_MIN_GRAPH_SILHOUETTE = 0.36  # the same for graphs, whose eigenvectors separate even unrelated motion a little


@dataclass(frozen=True)
class EmbeddingMap:
    """2-D positions and groups of an index's segments, by one of their vectors.

    Attributes:
        coordinates: Positions (n, 2), from 0 to 1.
        groups: Group of each segment (n,), the largest group first.
    """

    coordinates: np.ndarray
    groups: np.ndarray


class EmbeddingMaps:
    """The maps of an index by appearance and by motion, each computed when it is first needed.

    Args:
        index: The index.
    """

    def __init__(self, index: "VideoIndex") -> None:
        self._index = index
        self._maps: dict[VectorName, EmbeddingMap] = {}
        self._lock = threading.Lock()

    def map_for(self, vector_name: VectorName) -> EmbeddingMap:
        """Return the map by appearance or by motion."""
        with self._lock:
            if vector_name not in self._maps:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of scikit-learn, about copies of one video
                    self._maps[vector_name] = self._compute_map(vector_name)
            return self._maps[vector_name]

    def _compute_map(self, vector_name: VectorName) -> EmbeddingMap:
        vectors = self._index.vectors(vector_name)
        fields = self._index.motion_fields() if vector_name == "motion" else None
        if fields is None or len(vectors) < _MIN_SEGMENTS:
            reduced = pca_reduce(vectors)
            return EmbeddingMap(layout_2d(reduced), kmeans_groups(reduced))
        sample = _even_sample(len(vectors), _MAX_GRAPH_SEGMENTS)
        embedded = embed_graph(alignment_graph(fields[sample], vectors[sample]))
        embedded = _place_others(vectors, sample, embedded)
        return EmbeddingMap(layout_2d(embedded), kmeans_groups(embedded, min_silhouette=_MIN_GRAPH_SILHOUETTE))


def alignment_graph(fields: np.ndarray, spectra: np.ndarray) -> "csr_matrix":
    """Link each segment to its 10 nearest by motion under alignment, less what both are similar to their neighbors.

    Still segments are linked to each other.

    Args:
        fields: Motion fields, (n, F).
        spectra: Their unit amplitude spectra (n, M), by which candidates are found.

    Returns:
        Symmetric weights (n, n): 1 for links in both directions, 0.5 for those in one.
    """
    from scipy.sparse import csr_matrix

    x, unit = unflatten_fields(fields), torch.from_numpy(spectra)
    is_still = ~unit.any(1, keepdim=True)
    unit = torch.cat([unit, is_still.float()], 1)
    num_candidates = min(_GRAPH_CANDIDATES, len(x) - 1)
    candidates = (unit @ unit.mT).fill_diagonal_(-torch.inf).topk(num_candidates).indices
    similarities = torch.cat([aligned_similarity(x[i : i + 1], x[candidates[i]])[0] for i in range(len(x))])
    similarities[is_still & is_still[candidates, 0]] = 1
    num_links = min(NUM_NEIGHBORS, num_candidates)
    means = similarities.topk(num_links).values.mean(1)
    best = (similarities - means[candidates] / 2).topk(num_links).indices
    columns = candidates.gather(1, best).flatten().numpy()
    rows = np.repeat(np.arange(len(x)), num_links)
    links = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(x), len(x)))
    return (links + links.T) / 2


def embed_graph(graph: "csr_matrix") -> np.ndarray:
    """Embed the nodes of a graph (n, n) as unit vectors (n, D) by a diffusion map.

    The eigenvectors of the normalized weights are scaled by their eigenvalues, which are near 1 for as many as there
    are separate groups (Coifman and Lafon, "Diffusion maps", 2006).
    """
    from scipy.sparse import diags
    from scipy.sparse.linalg import eigsh

    scale = diags(1 / np.sqrt(np.asarray(graph.sum(1)).ravel()))
    num_components = min(_GRAPH_COMPONENTS, graph.shape[0] - 1)
    start = np.ones(graph.shape[0])  # the same result every time
    eigenvalues, vectors = eigsh(scale @ graph @ scale, k=num_components, which="LA", v0=start)
    return l2_normalize((vectors * eigenvalues.clip(0)).astype(np.float32))


def _place_others(vectors: np.ndarray, sample: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the points of a sample, and for all other vectors the mean point of their nearest neighbors in it."""
    if len(sample) == len(vectors):
        return points
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=_NUM_NEAREST_IN_SAMPLE).fit(vectors[sample])
    all_points = points[nearest.kneighbors(vectors, return_distance=False)].mean(1)
    all_points[sample] = points
    return all_points


def _even_sample(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def pca_reduce(vectors: np.ndarray) -> np.ndarray:
    """Reduce L2-normalized vectors (n, D) to at most 32 principal components."""
    from sklearn.decomposition import PCA  # a second to import

    unit = l2_normalize(vectors)
    num_components = min(_PCA_COMPONENTS, *unit.shape)
    if len(unit) < 2 or num_components == 0:
        return np.zeros((len(unit), 1), np.float32)
    return PCA(num_components, svd_solver="randomized", random_state=0).fit_transform(unit).astype(np.float32)


def layout_2d(vectors: np.ndarray, *, max_tsne_points: int = _MAX_TSNE_SEGMENTS) -> np.ndarray:
    """Lay out vectors on a plane by t-SNE; a few by their first two components.

    Args:
        vectors: Vectors (n, D).
        max_tsne_points: With more vectors, an even sample is laid out, and each of the others is placed at the mean of
            its nearest neighbors in the sample.

    Returns:
        Positions (n, 2), from 0 to 1.
    """
    if len(vectors) < _MIN_SEGMENTS:
        flat = np.zeros((len(vectors), 2))
        flat[:, : min(2, vectors.shape[1])] = vectors[:, :2]
        return _fit_unit_square(flat)
    sample = _even_sample(len(vectors), max_tsne_points)
    points = tsne(vectors[sample])
    return _push_apart(_fit_unit_square(_place_others(vectors, sample, points)))


def kmeans_groups(vectors: np.ndarray, *, min_silhouette: float = _MIN_SILHOUETTE, seed: int = 0) -> np.ndarray:
    """Group vectors by k-means; the number of groups, 2 to 12, is that of the best silhouette score.

    Args:
        vectors: Vectors (n, D).
        min_silhouette: Score that groups must exceed.
        seed: Seed of k-means.

    Returns:
        The group of each vector (n,), the largest group first; one group if none are well separated.
    """
    from sklearn.cluster import KMeans

    single_group = np.zeros(len(vectors), int)
    if len(vectors) < _MIN_SEGMENTS or not vectors.std(0).any():
        return single_group
    sample = vectors[np.random.default_rng(seed).permutation(len(vectors))[:_MAX_SILHOUETTE_SEGMENTS]]

    def fit(count: int) -> np.ndarray:
        return KMeans(count, n_init=4, random_state=seed).fit_predict(sample)

    best = choose_groups(sample, fit, max_groups=min(_MAX_GROUPS, len(sample) // 2), min_score=min_silhouette)
    if best is None:
        return single_group
    labels = KMeans(best[0], n_init=4, random_state=seed).fit_predict(vectors)
    return sort_groups_by_size(labels)


def _push_apart(points: np.ndarray) -> np.ndarray:
    """Move points apart that lie on each other, so that thumbnails are visible; distant points stay."""
    from scipy.spatial import cKDTree

    spacing = _MIN_SPACING / np.sqrt(len(points))
    # Points at the same position need a direction to move in.
    points = points + np.random.default_rng(0).uniform(-1e-4, 1e-4, points.shape)
    for _ in range(_MAX_PUSHES):
        pairs = cKDTree(points).query_pairs(spacing, output_type="ndarray")
        if len(pairs) == 0:
            break
        first, second = pairs.T
        offsets = points[first] - points[second]
        distances = np.linalg.norm(offsets, axis=1, keepdims=True)
        push = 0.25 * (spacing - distances) * offsets / np.maximum(distances, 1e-9)
        np.add.at(points, first, push)
        np.add.at(points, second, -push)
    return _fit_unit_square(points)


def _fit_unit_square(points: np.ndarray) -> np.ndarray:
    """Shift and scale points, equally in both directions, to fill the unit square."""
    if len(points) == 0:
        return points
    low, high = points.min(0), points.max(0)
    extent = float((high - low).max())
    return (points - (low + high) / 2) / extent + 0.5 if extent > 0 else np.full_like(points, 0.5)
