"""What a run's encoder says about some videos, looked at from several sides: blocks for a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillmotion.data.paths import VideoSet
from stillmotion.encoders import Features, extract, load
from stillmotion.explain.figure import colours
from stillmotion.explain.neighbours import agreement, nearest, thumbnail
from stillmotion.explain.spectrum import (
    eigenvalue_plane,
    eigenvalues,
    similarity_lags,
    similarity_matrix,
    temporal_similarity,
)
from stillmotion.nn.split import SplitConfig
from stillmotion.options import Kind
from stillmotion.report.blocks import Block, Neighbours, Table, Text, Thumbnail, figures

_NEAREST = 4


@dataclass(frozen=True)
class View:
    """A run's features of some videos, with their per-frame features."""

    split: SplitConfig
    videos: VideoSet
    features: Features

    @property
    def labels(self) -> dict[str, np.ndarray]:
        """Labels of the videos that could be read."""
        return {name: y[self.features.index] for name, y in self.videos.labels.items()}


def look(run: str | Path, videos: VideoSet) -> View:
    """The run's view of all these videos."""
    encoder = load(run, device="auto")
    return View(encoder.split, videos, extract(encoder, videos, keep_frames=True))


def spectrum_blocks(views: Mapping[str, View]) -> list[Block]:
    """Eigenvalues in the complex plane, one figure for each named view."""
    views = {name: view for name, view in views.items() if "static" in view.features.kinds}
    if not views:
        return [Text("Clips of fewer than three time steps have no Koopman operator.")]
    colour = colours(list(views))
    drawn = {}
    for name, view in views.items():
        assert view.features.frames is not None
        values = eigenvalues(view.features.frames, ridge=view.split.ridge)
        drawn[f"eigenvalues of {name}"] = eigenvalue_plane(
            values, radius=view.split.radius, title=name, colour=colour[name]
        )
    count = len(next(iter(views.values())).features.index)
    caption = (
        f"Eigenvalues of the Koopman operators of {count} clips, from per-frame features of the backbone. On the grey "
        "unit circle a motion neither grows nor fades, and its angle is its speed; in the green disc of radius ξ about "
        "1 hardly anything changes from frame to frame: that part is static."
    )
    return [figures(drawn, caption=caption)]


def similarity_blocks(views: Mapping[str, View]) -> list[Block]:
    """How alike the frames of a clip stay."""
    found = {}
    for name, view in views.items():
        assert view.features.frames is not None
        found[name] = temporal_similarity(view.features.frames)
    drawn = {f"similarity of frames: {n}": similarity_matrix(m, title=n) for n, m in found.items()}
    drawn["similarity by lag"] = similarity_lags(found)
    caption = (
        "The cosine between per-frame features, averaged over clips. Where it falls with time, frames are told apart."
    )
    return [figures(drawn, caption=caption)]


def neighbour_blocks(view: View, queries: Sequence[int]) -> list[Block]:
    """The nearest videos of each query by the static and by the dynamic half, as moving thumbnails.

    queries: places among the videos that could be read.
    """
    halves = {half: view.features.vector(half) for half in _halves(view)}
    k = min(_NEAREST, len(view.features.index) - 1)
    if k < 1:
        return [Text("Neighbours need at least two videos that can be read.")]
    found = {half: nearest(vectors, queries, k=k) for half, vectors in halves.items()}
    pictures: dict[int, Thumbnail] = {}

    def picture(place: int) -> Thumbnail:
        if place not in pictures:
            index = int(view.features.index[place])
            pictures[place] = Thumbnail(thumbnail(view.videos.video(index)), caption(view.videos, index))
        return pictures[place]

    return [
        Neighbours(picture(q), {f"nearest by {h}": [picture(int(n)) for n in found[h][i]] for h in halves})
        for i, q in enumerate(queries)
    ]


def agreement_table(views: Mapping[str, View], chance: Mapping[str, float]) -> Table:
    """How often a video's nearest share its labels, by view and by half."""
    targets = list(chance)
    rows = [
        [f"{name}, {half}", *(f"{found[t]:.2f}" for t in targets)]
        for name, view in views.items()
        for half in _halves(view)
        for found in [agreement(view.features.vector(half), view.labels, k=_NEAREST)]
    ]
    rows.append(["chance", *(f"{chance[t]:.2f}" for t in targets)])
    count = len(next(iter(views.values())).features.index)
    told = f"How many of a video's {_NEAREST} nearest share its value, over all {count} videos."
    return Table(["nearest by", *targets], rows, told)


def _halves(view: View) -> tuple[Kind, ...]:
    """By what neighbours are looked for: the whole where clips are too short for halves."""
    return ("static", "dynamic") if "static" in view.features.kinds else ("whole",)


def caption(videos: VideoSet, index: int) -> str:
    """The values of a video's labels, or its name."""
    labels, classes = videos.labels, videos.classes
    values = [classes[t][int(y[index])] for t, y in labels.items() if 0 <= int(y[index]) < len(classes.get(t, ()))]
    return ", ".join(values) or Path(videos.name(index)).name
