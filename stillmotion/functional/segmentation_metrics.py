"""Frame accuracy, Edit and F1@k of temporal action segmentation (image-to-video, Eq. 39–42).

The labels of a video, (T,), are integers, one for each frame; a segment is a maximal run of one label. Background
frames count in the accuracy, but background segments are left out of Edit and F1.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

F1_IOU_THRESHOLDS = (0.10, 0.25, 0.50)


class ActionSegment(NamedTuple):
    """Frames start to stop - 1, which have one label."""

    label: int
    start: int
    stop: int


class SegmentCounts(NamedTuple):
    """Numbers of correctly predicted, wrongly predicted and missed segments."""

    true_positives: int
    false_positives: int
    false_negatives: int

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall; 0 if there are no segments."""
        return 2 * self.true_positives / max(2 * self.true_positives + self.false_positives + self.false_negatives, 1)


def find_segments(labels: np.ndarray, *, background: Collection[int] = ()) -> list[ActionSegment]:
    """Find the segments of a video, without those of background.

    Args:
        labels: Label of each frame, (T,).
        background: Labels that count as background.

    Returns:
        Segments in temporal order.
    """
    if len(labels) == 0:
        return []
    starts = np.concatenate([[0], np.flatnonzero(np.diff(labels)) + 1])
    stops = np.append(starts[1:], len(labels))
    segments = [ActionSegment(int(labels[a]), int(a), int(b)) for a, b in zip(starts, stops, strict=True)]
    return [segment for segment in segments if segment.label not in background]


def edit_score(predictions: Sequence[ActionSegment], targets: Sequence[ActionSegment]) -> float:
    """One minus the normalized edit distance of two label sequences (Eq. 39).

    Args:
        predictions: Predicted segments, in temporal order.
        targets: True segments, in temporal order.

    Returns:
        Score, 0 to 1; 1 if both are empty.
    """
    row = np.arange(len(targets) + 1)
    target_labels = np.array([segment.label for segment in targets], np.int64)
    for index, segment in enumerate(predictions, start=1):
        changed = np.minimum(row[:-1] + (target_labels != segment.label), row[1:] + 1)
        row = np.concatenate([[index], changed])
        # Insertions: the minimum over all earlier cells, each one step more expensive.
        steps = np.arange(len(row))
        row = np.minimum.accumulate(row - steps) + steps
    return 1 - int(row[-1]) / max(len(predictions), len(targets), 1)


def match_segments(
    predictions: Sequence[ActionSegment], targets: Sequence[ActionSegment], *, min_iou: float
) -> SegmentCounts:
    """Match predicted to true segments by IoU, greedily in temporal order, as the published evaluation code does.

    Each prediction takes the segment of its label that it overlaps most. It is a true positive if the IoU is large
    enough and no earlier prediction has matched that segment.

    Args:
        predictions: Predicted segments, in temporal order.
        targets: True segments.
        min_iou: Smallest intersection over union of a match.

    Returns:
        Counts of matched and unmatched segments.
    """
    matched: set[int] = set()
    for segment in predictions:
        ious = [_segment_iou(segment, target) for target in targets]
        best = int(np.argmax(ious)) if ious else 0
        if ious and ious[best] >= min_iou and best not in matched:
            matched.add(best)
    return SegmentCounts(len(matched), len(predictions) - len(matched), len(targets) - len(matched))


def segmentation_scores(
    predictions: Sequence[np.ndarray], targets: Sequence[np.ndarray], *, background: Collection[int] = ()
) -> dict[str, float]:
    """Edit, frame accuracy and F1@10, F1@25 and F1@50 of a set of videos, in percent.

    Edit is the mean over videos; accuracy is over all frames of all videos, and F1 over all of their segments.

    Args:
        predictions: Predicted labels of each video, (T,).
        targets: True labels of each video, (T,).
        background: Labels that count as background.

    Returns:
        Scores by name: edit, accuracy, f1@10, f1@25, f1@50.
    """
    segments = [
        (find_segments(a, background=background), find_segments(b, background=background))
        for a, b in zip(predictions, targets, strict=True)
    ]
    num_correct = sum(int((a == b).sum()) for a, b in zip(predictions, targets, strict=True))
    scores = {
        "edit": float(np.mean([edit_score(a, b) for a, b in segments])),
        "accuracy": num_correct / sum(len(b) for b in targets),
    }
    for min_iou in F1_IOU_THRESHOLDS:
        counts = [match_segments(a, b, min_iou=min_iou) for a, b in segments]
        scores[f"f1@{round(100 * min_iou)}"] = SegmentCounts(*(sum(part) for part in zip(*counts, strict=True))).f1
    return {name: 100 * value for name, value in scores.items()}


def _segment_iou(a: ActionSegment, b: ActionSegment) -> float:
    """Intersection over union; 0 for different labels (Eq. 41)."""
    if a.label != b.label:
        return 0.0
    return max(0, min(a.stop, b.stop) - max(a.start, b.start)) / (max(a.stop, b.stop) - min(a.start, b.start))
