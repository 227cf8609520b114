"""How well the actions of untrimmed videos were told apart: accuracy, Edit and F1@k (image-to-video, Eq. 39–42).

A video's labels (T,) are ints, one for each frame; a segment is a longest run of one label. Frames of background count
in the accuracy, while segments of background are left out of Edit and F1.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

OVERLAPS = (0.10, 0.25, 0.50)


class Segment(NamedTuple):
    """Frames start to stop - 1 of one label."""

    label: int
    start: int
    stop: int


class Counts(NamedTuple):
    """Segments found, wrongly predicted and missed."""

    hits: int
    false: int
    missed: int

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 where there is no segment at all."""
        return 2 * self.hits / max(2 * self.hits + self.false + self.missed, 1)


def segments(labels: np.ndarray, *, background: Collection[int] = ()) -> list[Segment]:
    """The segments of a video in order, without those of background."""
    if len(labels) == 0:
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    stops = np.append(starts[1:], len(labels))
    found = [Segment(int(labels[a]), int(a), int(b)) for a, b in zip(starts, stops, strict=True)]
    return [segment for segment in found if segment.label not in background]


def edit(predicted: Sequence[Segment], truth: Sequence[Segment]) -> float:
    """1 less the edit distance of the two orders of labels over the longer one (Eq. 39); 1 where both are empty."""
    row = np.arange(len(truth) + 1)
    wanted = np.array([segment.label for segment in truth], np.int64)
    for number, segment in enumerate(predicted, start=1):
        changed = np.minimum(row[:-1] + (wanted != segment.label), row[1:] + 1)
        row = np.concatenate([[number], changed])
        # What is left is a run of insertions: the least of all earlier cells, each one dearer a step.
        steps = np.arange(len(row))
        row = np.minimum.accumulate(row - steps) + steps
    return 1 - int(row[-1]) / max(len(predicted), len(truth), 1)


def matched(predicted: Sequence[Segment], truth: Sequence[Segment], *, overlap: float) -> Counts:
    """Predictions that find a segment of their label, by the rule of the published evaluations.

    In their order, each takes the segment of its label that it overlaps most, and is a hit if the intersection over
    union is at least `overlap` and no earlier one has hit that segment.
    """
    hit: set[int] = set()
    for segment in predicted:
        shares = [_share(segment, other) for other in truth]
        best = int(np.argmax(shares)) if shares else 0
        if shares and shares[best] >= overlap and best not in hit:
            hit.add(best)
    return Counts(len(hit), len(predicted) - len(hit), len(truth) - len(hit))


def scores(
    predicted: Sequence[np.ndarray], truth: Sequence[np.ndarray], *, background: Collection[int] = ()
) -> dict[str, float]:
    """Edit, accuracy and F1@10, F1@25 and F1@50 of a set of videos, in percent.

    Edit is the mean over videos; accuracy is over all frames of all videos, and F1 over all of their segments.
    """
    parted = [
        (segments(a, background=background), segments(b, background=background))
        for a, b in zip(predicted, truth, strict=True)
    ]
    right = sum(int((a == b).sum()) for a, b in zip(predicted, truth, strict=True))
    found = {
        "edit": float(np.mean([edit(a, b) for a, b in parted])),
        "accuracy": right / sum(len(b) for b in truth),
    }
    for overlap in OVERLAPS:
        each = [matched(a, b, overlap=overlap) for a, b in parted]
        found[f"f1@{round(100 * overlap)}"] = Counts(*(sum(part) for part in zip(*each, strict=True))).f1
    return {name: 100 * value for name, value in found.items()}


def _share(a: Segment, b: Segment) -> float:
    """Intersection over union; 0 of different labels (Eq. 41)."""
    if a.label != b.label:
        return 0.0
    return max(0, min(a.stop, b.stop) - max(a.start, b.start)) / (max(a.stop, b.stop) - min(a.start, b.start))
