"""Page sections about an encoder: eigenvalues, temporal similarity and nearest neighbors of videos.

Shapes: N videos, D channels.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.encoders import Features, extract_features, load
from stillmotion.errors import StillmotionError
from stillmotion.explain.spectrum_plots import (
    clip_eigenvalues,
    plot_eigenvalues,
    plot_similarity_by_lag,
    plot_similarity_matrix,
    temporal_similarity,
)
from stillmotion.functional.knn import l2_normalize
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.report.images import thumbnail_uri
from stillmotion.report.page_blocks import Block, Neighbors, Table, Text, Thumbnail, figure_block
from stillmotion.report.plot_style import assign_colors
from stillmotion.utils.formatting import format_count
from stillmotion.utils.option_types import FeatureKind


def nearest_videos(vectors: np.ndarray, queries: Sequence[int], *, k: int) -> np.ndarray:
    """Find the k nearest other videos of each query by the cosine of centered embeddings.

    Args:
        vectors: Embeddings (N, D).
        queries: Indices of the queries.
        k: Number of neighbors.

    Returns:
        Indices of the neighbors (len(queries), k), nearest first.
    """
    if not 0 < k < len(vectors):
        raise StillmotionError(f"k must be between 1 and {len(vectors) - 1} for {len(vectors)} videos, got {k}")
    centred = vectors - vectors.mean(0)
    unit = l2_normalize(centred)
    cosine = unit[queries] @ unit.T
    cosine[np.arange(len(queries)), queries] = -np.inf
    return np.argsort(-cosine, axis=1, kind="stable")[:, :k]


def neighbor_label_agreement(vectors: np.ndarray, labels: Mapping[str, np.ndarray], *, k: int) -> dict[str, float]:
    """Compute the fraction of a video's k nearest neighbors that have its label, averaged over labeled videos.

    Args:
        vectors: Embeddings (N, D).
        labels: Labels (N,) by target; negative ones are unknown.
        k: Number of neighbors.
    """
    neighbors = nearest_videos(vectors, range(len(vectors)), k=k)
    return {name: float((y[neighbors] == y[:, None])[y >= 0].mean()) for name, y in labels.items()}


_NUM_NEIGHBORS = 4


@dataclass(frozen=True)
class EncoderView:
    """Features of some videos, including per-frame features, by an encoder.

    Attributes:
        static_dynamic: Static/dynamic split of the encoder.
        videos: The videos.
        features: Their features.
    """

    static_dynamic: StaticDynamicConfig
    videos: VideoDataset
    features: Features

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """Labels of the videos that could be read, by target."""
        return {name: y[self.features.index] for name, y in self.videos.labels.items()}


def view_encoder(spec: str | Path, dataset: VideoDataset) -> EncoderView:
    """Extract the features of videos.

    Args:
        spec: Encoder spec.
        dataset: The videos.
    """
    encoder = load(spec, device="auto")
    return EncoderView(encoder.static_dynamic, dataset, extract_features(encoder, dataset, keep_frames=True))


def eigenvalue_blocks(views: Mapping[str, EncoderView]) -> list[Block]:
    """Build the blocks with Koopman eigenvalues, a figure for each named view."""
    views = {name: view for name, view in views.items() if "static" in view.features.kinds}
    if not views:
        return [Text("Clips of fewer than three time steps have no Koopman operator.")]
    color = assign_colors(list(views))
    figures = {}
    for name, view in views.items():
        assert view.features.frames is not None
        values = clip_eigenvalues(view.features.frames, ridge=view.static_dynamic.ridge)
        figures[f"eigenvalues of {name}"] = plot_eigenvalues(
            values, radius=view.static_dynamic.radius, title=name, color=color[name]
        )
    count = len(next(iter(views.values())).features.index)
    caption = (
        f"Eigenvalues of the Koopman operators of {format_count(count, 'clip')}, from per-frame features of the "
        "backbone. On the gray unit circle a motion neither grows nor decays, and its angle is its speed; in the green "
        "disc of radius ξ around 1 hardly anything changes from frame to frame: that part is static."
    )
    return [figure_block(figures, caption=caption)]


def similarity_blocks(views: Mapping[str, EncoderView]) -> list[Block]:
    """Build the blocks with the temporal similarity of frames, for each named view."""
    matrices = {}
    for name, view in views.items():
        assert view.features.frames is not None
        matrices[name] = temporal_similarity(view.features.frames)
    figures = {f"similarity of frames: {n}": plot_similarity_matrix(m, title=n) for n, m in matrices.items()}
    figures["similarity by lag"] = plot_similarity_by_lag(matrices)
    caption = "Cosine between per-frame features, averaged over clips. If it falls with the lag, features change."
    return [figure_block(figures, caption=caption)]


def neighbor_blocks(view: EncoderView, queries: Sequence[int]) -> list[Block]:
    """Build the blocks with the nearest videos of each query by the static and the dynamic component.

    Args:
        view: Features of the videos.
        queries: Indices among the videos that could be read.
    """
    k = min(_NUM_NEIGHBORS, len(view.features.index) - 1)
    if k < 1:
        return [Text("Nearest neighbors need at least two videos that can be read.")]
    neighbors = {kind: nearest_videos(view.features.vectors(kind), queries, k=k) for kind in _neighbor_kinds(view)}

    @functools.cache
    def thumbnail(position: int) -> Thumbnail:
        index = int(view.features.index[position])
        return Thumbnail(thumbnail_uri(view.videos.open_video(index)), video_caption(view.videos, index))

    return [
        Neighbors(
            thumbnail(query),
            {f"nearest by {kind}": [thumbnail(int(n)) for n in rows[i]] for kind, rows in neighbors.items()},
        )
        for i, query in enumerate(queries)
    ]


def neighbor_label_table(views: Mapping[str, EncoderView], chance: Mapping[str, float]) -> Table:
    """Build the table of how often a video's nearest neighbors have its labels, by view and component.

    Args:
        views: Views by name.
        chance: Chance level of each target.
    """
    targets = list(chance)
    rows = [
        [f"{name}, {kind}", *(f"{agreement[target]:.2f}" for target in targets)]
        for name, view in views.items()
        for kind in _neighbor_kinds(view)
        for agreement in [neighbor_label_agreement(view.features.vectors(kind), view.labels, k=_NUM_NEIGHBORS)]
    ]
    rows.append(["chance", *(f"{chance[target]:.2f}" for target in targets)])
    count = len(next(iter(views.values())).features.index)
    caption = f"Fraction of a video's {_NUM_NEIGHBORS} nearest neighbors with the same value, over {count} videos."
    return Table(["nearest by", *targets], rows, caption)


def _neighbor_kinds(view: EncoderView) -> tuple[FeatureKind, ...]:
    """Return the feature kinds of neighbors: whole if clips are too short for static and dynamic components."""
    return ("static", "dynamic") if "static" in view.features.kinds else ("whole",)


def video_caption(dataset: VideoDataset, index: int) -> str:
    """Return the values of a video's labels, or its file name.

    Args:
        dataset: The videos.
        index: Index of the video.
    """
    labels, classes = dataset.labels, dataset.classes
    values = [classes[t][int(y[index])] for t, y in labels.items() if 0 <= int(y[index]) < len(classes.get(t, ()))]
    return ", ".join(values) or Path(dataset.name(index)).name
