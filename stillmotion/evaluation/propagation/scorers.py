"""Tracks against the truth: a row for each sequence and the mean of the set, beside what copying the first frame gets.

Shapes: T frames of H×W pixels, J joints.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from stillmotion.data.datasets.davis import MaskSequence
from stillmotion.errors import VideoError
from stillmotion.evaluation.metrics.propagation_metrics import (
    boundary_f_measure,
    davis_statistics,
    mean_iou,
    normalized_keypoint_distances,
    pck_per_joint,
    pck_per_video,
    pixel_confusion_matrix,
    region_similarity,
)
from stillmotion.evaluation.propagation.tracker import MaskTrack, PointTrack

ScoreRow = dict[str, Any]

_VIP_CLASSES = 20  # classes of VIP, with the background
_THRESHOLDS = (0.1, 0.2)
_COPY_BASELINE = "copy "
SEQUENCE_MEAN = "over sequences"


class SequenceScorer(Protocol):
    """Collects the tracks of a set."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What a row has to show."""
        ...

    def update(self, track: Any) -> ScoreRow:
        """The scores of one sequence."""
        ...

    def compute(self) -> ScoreRow:
        """Of all that were added: the mean as the set's own tool takes it, and under SEQUENCES as the paper does."""
        ...

    def mean_descriptions(self) -> dict[str, str]:
        """What each of the two means is over."""
        ...


class DavisScorer:
    """J and F of DAVIS: the first and the last frame do not count, and every object counts once."""

    columns = ("J", "F", "J&F", "copy J&F")

    def __init__(self) -> None:
        self._objects: list[ScoreRow] = []
        self._rows: list[ScoreRow] = []

    def update(self, track: MaskTrack) -> ScoreRow:
        given = track.masks[0]
        values: list[list[tuple[float, ...]]] = [[] for _ in range(int(given.max()))]
        for number, truth in _iter_targets(track.sequence, range(1, len(track.masks) - 1)):
            found = track.masks[number]
            for i, measured in enumerate(values, 1):
                pairs = [(mask == i, truth == i) for mask in (found, given)]
                measured.append(
                    tuple(measure(*pair) for pair in pairs for measure in (region_similarity, boundary_f_measure))
                )
        if not any(values):
            raise VideoError(
                f"{track.sequence.name}: no object in its first mask, or no mask of a later frame but the last"
            )
        objects = [_object_scores(np.array(measured)) for measured in values]
        self._objects += objects
        self._rows.append(_mean_row(objects, self.columns))
        return self._rows[-1] | {"objects": objects}

    def compute(self) -> ScoreRow:
        return _mean_row(self._objects, self.columns) | {
            "objects": len(self._objects),
            SEQUENCE_MEAN: _mean_row(self._rows, self.columns),
        }

    def mean_descriptions(self) -> dict[str, str]:
        return {"mean": f"over {len(self._objects)} objects", SEQUENCE_MEAN: SEQUENCE_MEAN}


class VipScorer:
    """Mean IoU of VIP, without the given frame.

    The common scripts count the pixels of all videos together; the paper takes each class's mean over videos.
    """

    columns = ("mIoU", "copy mIoU")

    def __init__(self) -> None:
        self._tables: list[np.ndarray] = []

    def update(self, track: MaskTrack) -> ScoreRow:
        table, given = np.zeros((2, _VIP_CLASSES, _VIP_CLASSES), np.int64), track.masks[0]
        for number, truth in _iter_targets(track.sequence, range(1, len(track.masks))):
            table += [pixel_confusion_matrix(mask, truth, _VIP_CLASSES) for mask in (track.masks[number], given)]
        if not table.any():
            raise VideoError(f"{track.sequence.name}: no mask of a frame after the first")
        self._tables.append(table)
        return self._row([table])

    def compute(self) -> ScoreRow:
        return self._row([np.sum(self._tables, axis=0)]) | {SEQUENCE_MEAN: self._row(self._tables)}

    def mean_descriptions(self) -> dict[str, str]:
        return {
            "mean": "over the pixels of all videos, as in the common scripts",
            SEQUENCE_MEAN: "by class over videos, Eq. 37",
        }

    def _row(self, tables: Sequence[np.ndarray]) -> ScoreRow:
        return {column: mean_iou(each) for column, each in zip(self.columns, zip(*tables, strict=True), strict=True)}


class JhmdbScorer:
    """PCK of JHMDB, without the given frame.

    The common scripts take each joint over the frames of all videos, and the mean over joints; the paper the share of
    all joints of a video, and the mean over videos.
    """

    columns = tuple(f"{copy}PCK@{threshold}" for copy in ("", _COPY_BASELINE) for threshold in _THRESHOLDS)

    def __init__(self) -> None:
        self._distances: list[list[np.ndarray]] = [[], []]

    def update(self, track: PointTrack) -> ScoreRow:
        truth = track.sequence.keypoints[1 : len(track.points)]
        copied = np.broadcast_to(track.points[0], truth.shape)
        each = [normalized_keypoint_distances(found, truth) for found in (track.points[1 : 1 + len(truth)], copied)]
        if np.isnan(each[0]).all():
            raise VideoError(f"{track.sequence.name}: no joint of the first frame is known in a later one")
        for kept, distances in zip(self._distances, each, strict=True):
            kept.append(distances)
        return self._row([[distances] for distances in each], pck_per_video)

    def compute(self) -> ScoreRow:
        return self._row(self._distances, pck_per_joint) | {SEQUENCE_MEAN: self._row(self._distances, pck_per_video)}

    def mean_descriptions(self) -> dict[str, str]:
        return {
            "mean": "by joint over the frames of all videos, as in the common scripts",
            SEQUENCE_MEAN: "over videos, all joints of a video together, Eq. 38",
        }

    def _row(self, both: list[list[np.ndarray]], measure: Callable[[list[np.ndarray], float], float]) -> ScoreRow:
        widest = max(d.shape[1] for d in both[0])
        padded = [[np.pad(d, ((0, 0), (0, widest - d.shape[1])), constant_values=np.nan) for d in ds] for ds in both]
        values = [measure(distances, threshold) for distances in padded for threshold in _THRESHOLDS]
        return dict(zip(self.columns, values, strict=True))


def create_scorer(layout: str) -> SequenceScorer:
    """Empty scores of this set."""
    made: dict[str, SequenceScorer] = {"davis": DavisScorer(), "vip": VipScorer()}
    return made.get(layout, JhmdbScorer())


def _iter_targets(sequence: MaskSequence, numbers: range) -> Iterator[tuple[int, np.ndarray]]:
    """Those of the frames that have a mask."""
    for number in numbers:
        truth = sequence.read_mask(number)
        if truth is not None:
            yield number, truth


def _object_scores(values: np.ndarray) -> ScoreRow:
    """Scores of one object from J and F of each frame, found and copied (T, 4)."""
    j, f = (davis_statistics(values[:, i]) for i in (0, 1))
    return {
        "J": j.mean,
        "F": f.mean,
        "J&F": (j.mean + f.mean) / 2,
        "copy J&F": float(values[:, 2:].mean()),
        "J recall": j.recall,
        "J decay": j.decay,
        "F recall": f.recall,
        "F decay": f.decay,
    }


def _mean_row(rows: list[ScoreRow], columns: tuple[str, ...]) -> ScoreRow:
    return {column: float(np.mean([row[column] for row in rows])) for column in columns}
