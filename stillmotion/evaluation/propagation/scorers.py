"""Scores of propagated labels per sequence and over a data set, beside a baseline that copies the first frame.

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
from stillmotion.utils.formatting import format_count

ScoreRow = dict[str, Any]

_VIP_CLASSES = 20  # with the background
_THRESHOLDS = (0.1, 0.2)
_COPY_BASELINE = "copy_baseline "
SEQUENCE_MEAN = "sequence_mean"


class SequenceScorer(Protocol):
    """Collects the scores of a data set."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the scores in a row."""
        ...

    def update(self, track: Any) -> ScoreRow:
        """Add a sequence and return its scores."""
        ...

    def compute(self) -> ScoreRow:
        """Return the mean as the data set's own tool takes it, and under `SEQUENCE_MEAN` as the paper does."""
        ...

    def mean_descriptions(self) -> dict[str, str]:
        """Describe over what each of the two means is taken."""
        ...


class DavisScorer:
    """J and F of DAVIS: the first and the last frame do not count, and every object counts once."""

    columns = ("J", "F", "J&F", f"{_COPY_BASELINE}J&F")

    def __init__(self) -> None:
        self._objects: list[ScoreRow] = []
        self._rows: list[ScoreRow] = []

    def update(self, track: MaskTrack) -> ScoreRow:
        given = track.masks[0]
        values: list[list[tuple[float, ...]]] = [[] for _ in range(int(given.max()))]
        for number, target in _iter_targets(track.sequence, range(1, len(track.masks) - 1)):
            prediction = track.masks[number]
            for i, measured in enumerate(values, 1):
                pairs = [(mask == i, target == i) for mask in (prediction, given)]
                measured.append(
                    tuple(measure(*pair) for pair in pairs for measure in (region_similarity, boundary_f_measure))
                )
        if not any(values):
            raise VideoError(
                f"{track.sequence.name}: the first mask has no object, or no later frame but the last has a mask."
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
        return {"mean": f"over {format_count(len(self._objects), 'object')}", SEQUENCE_MEAN: "over sequences"}


class VipScorer:
    """Mean IoU of VIP, without the given frame unless the track has it from its cells.

    The common scripts count the pixels of all videos together; the paper averages each class over videos.
    """

    columns = ("mIoU", f"{_COPY_BASELINE}mIoU")

    def __init__(self) -> None:
        self._tables: list[np.ndarray] = []

    def update(self, track: MaskTrack) -> ScoreRow:
        table, given = np.zeros((2, _VIP_CLASSES, _VIP_CLASSES), np.int64), track.masks[0]
        for number, target in _iter_targets(track.sequence, range(1, len(track.masks))):
            table += [pixel_confusion_matrix(mask, target, _VIP_CLASSES) for mask in (track.masks[number], given)]
        if not table.any():
            raise VideoError(f"{track.sequence.name}: no frame after the first has a mask.")
        if track.first_mask_from_cells is not None:
            table += [
                pixel_confusion_matrix(mask, given, _VIP_CLASSES) for mask in (track.first_mask_from_cells, given)
            ]
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

    The common scripts take each joint over the frames of all videos, and average over joints; the paper takes all
    joints of a video, and averages over videos.
    """

    columns = tuple(f"{prefix}PCK@{threshold}" for prefix in ("", _COPY_BASELINE) for threshold in _THRESHOLDS)

    def __init__(self) -> None:
        self._distances: list[list[np.ndarray]] = [[], []]

    def update(self, track: PointTrack) -> ScoreRow:
        target = track.sequence.keypoints[1 : len(track.points)]
        copied = np.broadcast_to(track.points[0], target.shape)
        predictions = (track.points[1 : 1 + len(target)], copied)
        both = [normalized_keypoint_distances(prediction, target) for prediction in predictions]
        if np.isnan(both[0]).all():
            raise VideoError(f"{track.sequence.name}: no joint of the first frame is annotated in a later one.")
        for collected, distances in zip(self._distances, both, strict=True):
            collected.append(distances)
        return self._row([[distances] for distances in both], pck_per_video)

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
    """Create the scorer of a data set: davis, vip, jhmdb or points."""
    scorers: dict[str, SequenceScorer] = {"davis": DavisScorer(), "vip": VipScorer()}
    return scorers.get(layout, JhmdbScorer())


def _iter_targets(sequence: MaskSequence, numbers: range) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the frames that have a mask."""
    for number in numbers:
        target = sequence.read_mask(number)
        if target is not None:
            yield number, target


def _object_scores(values: np.ndarray) -> ScoreRow:
    """Return the scores of one object from J and F of each frame, predicted and copied (T, 4)."""
    j, f = (davis_statistics(values[:, i]) for i in (0, 1))
    return {
        "J": j.mean,
        "F": f.mean,
        "J&F": (j.mean + f.mean) / 2,
        f"{_COPY_BASELINE}J&F": float(values[:, 2:].mean()),
        "J recall": j.recall,
        "J decay": j.decay,
        "F recall": f.recall,
        "F decay": f.decay,
    }


def _mean_row(rows: list[ScoreRow], columns: tuple[str, ...]) -> ScoreRow:
    return {column: float(np.mean([row[column] for row in rows])) for column in columns}
