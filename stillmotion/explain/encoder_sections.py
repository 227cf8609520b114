"""Which videos an embedding holds to be alike, and moving thumbnails to see for oneself.

Shapes: N videos, D channels."""

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
from stillmotion.report.blocks import Block, Neighbors, Table, Text, Thumbnail, figure_block
from stillmotion.report.images import thumbnail_uri
from stillmotion.report.plot_style import assign_colors
from stillmotion.utils.option_types import FeatureKind


def nearest_videos(vectors: np.ndarray, queries: Sequence[int], *, k: int) -> np.ndarray:
    """The k nearest other videos (len(queries), k) of each query, by the cosine of centred embeddings (N, D)."""
    if not 0 < k < len(vectors):
        raise StillmotionError(f"{k} neighbours among {len(vectors)} videos asked for; choose 1 to {len(vectors) - 1}")
    centred = vectors - vectors.mean(0)
    unit = l2_normalize(centred)
    cosine = unit[queries] @ unit.T
    cosine[np.arange(len(queries)), queries] = -np.inf
    return np.argsort(-cosine, axis=1, kind="stable")[:, :k]


def neighbor_label_agreement(vectors: np.ndarray, labels: Mapping[str, np.ndarray], *, k: int) -> dict[str, float]:
    """For each target, how many of a video's k nearest have its label; the mean over all videos that have one."""
    found = nearest_videos(vectors, range(len(vectors)), k=k)
    return {name: float((y[found] == y[:, None])[y >= 0].mean()) for name, y in labels.items()}


_NUM_NEIGHBORS = 4


@dataclass(frozen=True)
class EncoderView:
    """A run's features of some videos, with their per-frame features."""

    static_dynamic: StaticDynamicConfig
    videos: VideoDataset
    features: Features

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """Labels of the videos that could be read."""
        return {name: y[self.features.index] for name, y in self.videos.labels.items()}


def view_encoder(spec: str | Path, dataset: VideoDataset) -> EncoderView:
    """The run's view of all these videos."""
    encoder = load(spec, device="auto")
    return EncoderView(encoder.static_dynamic, dataset, extract_features(encoder, dataset, keep_frames=True))


def eigenvalue_blocks(views: Mapping[str, EncoderView]) -> list[Block]:
    """Eigenvalues in the complex plane, one figure for each named view."""
    views = {name: view for name, view in views.items() if "static" in view.features.kinds}
    if not views:
        return [Text("Clips of fewer than three time steps have no Koopman operator.")]
    colour = assign_colors(list(views))
    drawn = {}
    for name, view in views.items():
        assert view.features.frames is not None
        values = clip_eigenvalues(view.features.frames, ridge=view.static_dynamic.ridge)
        drawn[f"eigenvalues of {name}"] = plot_eigenvalues(
            values, radius=view.static_dynamic.radius, title=name, color=colour[name]
        )
    count = len(next(iter(views.values())).features.index)
    caption = (
        f"Eigenvalues of the Koopman operators of {count} clips, from per-frame features of the backbone. On the grey "
        "unit circle a motion neither grows nor fades, and its angle is its speed; in the green disc of radius ξ about "
        "1 hardly anything changes from frame to frame: that part is static."
    )
    return [figure_block(drawn, caption=caption)]


def similarity_blocks(views: Mapping[str, EncoderView]) -> list[Block]:
    """How alike the frames of a clip stay."""
    found = {}
    for name, view in views.items():
        assert view.features.frames is not None
        found[name] = temporal_similarity(view.features.frames)
    drawn = {f"similarity of frames: {n}": plot_similarity_matrix(m, title=n) for n, m in found.items()}
    drawn["similarity by lag"] = plot_similarity_by_lag(found)
    caption = (
        "The cosine between per-frame features, averaged over clips. Where it falls with time, frames are told apart."
    )
    return [figure_block(drawn, caption=caption)]


def neighbor_blocks(view: EncoderView, queries: Sequence[int]) -> list[Block]:
    """The nearest videos of each query by the static and by the dynamic half, as moving thumbnails.

    queries: places among the videos that could be read.
    """
    halves = {half: view.features.vectors(half) for half in _neighbor_kinds(view)}
    k = min(_NUM_NEIGHBORS, len(view.features.index) - 1)
    if k < 1:
        return [Text("Neighbours need at least two videos that can be read.")]
    found = {half: nearest_videos(vectors, queries, k=k) for half, vectors in halves.items()}
    pictures: dict[int, Thumbnail] = {}

    def picture(place: int) -> Thumbnail:
        if place not in pictures:
            index = int(view.features.index[place])
            pictures[place] = Thumbnail(thumbnail_uri(view.videos.open_video(index)), video_caption(view.videos, index))
        return pictures[place]

    return [
        Neighbors(picture(q), {f"nearest by {h}": [picture(int(n)) for n in found[h][i]] for h in halves})
        for i, q in enumerate(queries)
    ]


def neighbor_label_table(views: Mapping[str, EncoderView], chance: Mapping[str, float]) -> Table:
    """How often a video's nearest share its labels, by view and by half."""
    targets = list(chance)
    rows = [
        [f"{name}, {half}", *(f"{found[t]:.2f}" for t in targets)]
        for name, view in views.items()
        for half in _neighbor_kinds(view)
        for found in [neighbor_label_agreement(view.features.vectors(half), view.labels, k=_NUM_NEIGHBORS)]
    ]
    rows.append(["chance", *(f"{chance[t]:.2f}" for t in targets)])
    count = len(next(iter(views.values())).features.index)
    told = f"How many of a video's {_NUM_NEIGHBORS} nearest share its value, over all {count} videos."
    return Table(["nearest by", *targets], rows, told)


def _neighbor_kinds(view: EncoderView) -> tuple[FeatureKind, ...]:
    """By what neighbours are looked for: the whole where clips are too short for halves."""
    return ("static", "dynamic") if "static" in view.features.kinds else ("whole",)


def video_caption(dataset: VideoDataset, index: int) -> str:
    """The values of a video's labels, or its name."""
    labels, classes = dataset.labels, dataset.classes
    values = [classes[t][int(y[index])] for t, y in labels.items() if 0 <= int(y[index]) < len(classes.get(t, ()))]
    return ", ".join(values) or Path(dataset.name(index)).name
