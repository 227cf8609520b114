"""How well the actions of untrimmed videos were told apart: accuracy, Edit and F1@k (image-to-video, Eq. 39–42).

A video's labels (T,) are ints, one for each frame; a segment is a longest run of one label. Frames of background count
in the accuracy, while segments of background are left out of Edit and F1.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

F1_IOU_THRESHOLDS = (0.10, 0.25, 0.50)


class ActionSegment(NamedTuple):
    """Frames start to stop - 1 of one label."""

    label: int
    start: int
    stop: int


class SegmentCounts(NamedTuple):
    """Segments found, wrongly predicted and missed."""

    true_positives: int
    false_positives: int
    false_negatives: int

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 where there is no segment at all."""
        return 2 * self.true_positives / max(2 * self.true_positives + self.false_positives + self.false_negatives, 1)


def find_segments(labels: np.ndarray, *, background: Collection[int] = ()) -> list[ActionSegment]:
    """The segments of a video in order, without those of background."""
    if len(labels) == 0:
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    stops = np.append(starts[1:], len(labels))
    found = [ActionSegment(int(labels[a]), int(a), int(b)) for a, b in zip(starts, stops, strict=True)]
    return [segment for segment in found if segment.label not in background]


def edit_score(predictions: Sequence[ActionSegment], targets: Sequence[ActionSegment]) -> float:
    """1 less the edit distance of the two orders of labels over the longer one (Eq. 39); 1 where both are empty."""
    row = np.arange(len(targets) + 1)
    wanted = np.array([segment.label for segment in targets], np.int64)
    for number, segment in enumerate(predictions, start=1):
        changed = np.minimum(row[:-1] + (wanted != segment.label), row[1:] + 1)
        row = np.concatenate([[number], changed])
        # What is left is a run of insertions: the least of all earlier cells, each one dearer a step.
        steps = np.arange(len(row))
        row = np.minimum.accumulate(row - steps) + steps
    return 1 - int(row[-1]) / max(len(predictions), len(targets), 1)


def match_segments(
    predictions: Sequence[ActionSegment], targets: Sequence[ActionSegment], *, min_iou: float
) -> SegmentCounts:
    """Predictions that find a segment of their label, by the rule of the published evaluations.

    In their order, each takes the segment of its label that it overlaps most, and is a hit if the intersection over
    union is at least `min_iou` and no earlier one has hit that segment.
    """
    hit: set[int] = set()
    for segment in predictions:
        shares = [_segment_iou(segment, other) for other in targets]
        best = int(np.argmax(shares)) if shares else 0
        if shares and shares[best] >= min_iou and best not in hit:
            hit.add(best)
    return SegmentCounts(len(hit), len(predictions) - len(hit), len(targets) - len(hit))


def segmentation_scores(
    predictions: Sequence[np.ndarray], targets: Sequence[np.ndarray], *, background: Collection[int] = ()
) -> dict[str, float]:
    """Edit, accuracy and F1@10, F1@25 and F1@50 of a set of videos, in percent.

    Edit is the mean over videos; accuracy is over all frames of all videos, and F1 over all of their segments.
    """
    parted = [
        (find_segments(a, background=background), find_segments(b, background=background))
        for a, b in zip(predictions, targets, strict=True)
    ]
    right = sum(int((a == b).sum()) for a, b in zip(predictions, targets, strict=True))
    found = {
        "edit": float(np.mean([edit_score(a, b) for a, b in parted])),
        "accuracy": right / sum(len(b) for b in targets),
    }
    for overlap in F1_IOU_THRESHOLDS:
        each = [match_segments(a, b, min_iou=overlap) for a, b in parted]
        found[f"f1@{round(100 * overlap)}"] = SegmentCounts(*(sum(part) for part in zip(*each, strict=True))).f1
    return {name: 100 * value for name, value in found.items()}


def _segment_iou(a: ActionSegment, b: ActionSegment) -> float:
    """Intersection over union; 0 of different labels (Eq. 41)."""
    if a.label != b.label:
        return 0.0
    return max(0, min(a.stop, b.stop) - max(a.start, b.start)) / (max(a.stop, b.stop) - min(a.start, b.start))
