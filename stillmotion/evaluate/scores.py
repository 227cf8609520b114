"""Tracks against the truth: a row for each sequence and the mean of the set, beside what copying the first frame gets.

Shapes: T frames of H×W pixels, J joints.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from stillmotion.data.dense import MaskSequence
from stillmotion.errors import VideoError
from stillmotion.evaluate.masks import (
    boundary_measure,
    confusion,
    joint_distances,
    mean_iou,
    pck,
    pck_by_video,
    region_similarity,
    statistics,
)
from stillmotion.evaluate.tracks import MaskTrack, PointTrack

Row = dict[str, Any]

_PARTS = 20  # classes of VIP, with the background
_THRESHOLDS = (0.1, 0.2)
_COPY = "copy "
SEQUENCES = "over sequences"


class Scores(Protocol):
    """Collects the tracks of a set."""

    @property
    def columns(self) -> tuple[str, ...]:
        """What a row has to show."""
        ...

    def add(self, track: Any) -> Row:
        """The scores of one sequence."""
        ...

    def mean(self) -> Row:
        """Of all that were added: the mean as the set's own tool takes it, and under SEQUENCES as the paper does."""
        ...

    def means(self) -> dict[str, str]:
        """What each of the two means is over."""
        ...


class Objects:
    """J and F of DAVIS: the first and the last frame do not count, and every object counts once."""

    columns = ("J", "F", "J&F", "copy J&F")

    def __init__(self) -> None:
        self._objects: list[Row] = []
        self._rows: list[Row] = []

    def add(self, track: MaskTrack) -> Row:
        given = track.masks[0]
        values: list[list[tuple[float, ...]]] = [[] for _ in range(int(given.max()))]
        for number, truth in _truths(track.sequence, range(1, len(track.masks) - 1)):
            found = track.masks[number]
            for i, measured in enumerate(values, 1):
                pairs = [(mask == i, truth == i) for mask in (found, given)]
                measured.append(
                    tuple(measure(*pair) for pair in pairs for measure in (region_similarity, boundary_measure))
                )
        if not any(values):
            raise VideoError(
                f"{track.sequence.name}: no object in its first mask, or no mask of a later frame but the last"
            )
        objects = [_object(np.array(measured)) for measured in values]
        self._objects += objects
        self._rows.append(_means(objects, self.columns))
        return self._rows[-1] | {"objects": objects}

    def mean(self) -> Row:
        return _means(self._objects, self.columns) | {
            "objects": len(self._objects),
            SEQUENCES: _means(self._rows, self.columns),
        }

    def means(self) -> dict[str, str]:
        return {"mean": f"over {len(self._objects)} objects", SEQUENCES: SEQUENCES}


class Parts:
    """Mean IoU of VIP, without the given frame.

    The common scripts count the pixels of all videos together; the paper takes each class's mean over videos.
    """

    columns = ("mIoU", "copy mIoU")

    def __init__(self) -> None:
        self._tables: list[np.ndarray] = []

    def add(self, track: MaskTrack) -> Row:
        table, given = np.zeros((2, _PARTS, _PARTS), np.int64), track.masks[0]
        for number, truth in _truths(track.sequence, range(1, len(track.masks))):
            table += [confusion(mask, truth, _PARTS) for mask in (track.masks[number], given)]
        if not table.any():
            raise VideoError(f"{track.sequence.name}: no mask of a frame after the first")
        self._tables.append(table)
        return self._row([table])

    def mean(self) -> Row:
        return self._row([np.sum(self._tables, axis=0)]) | {SEQUENCES: self._row(self._tables)}

    def means(self) -> dict[str, str]:
        return {
            "mean": "over the pixels of all videos, as in the common scripts",
            SEQUENCES: "by class over videos, Eq. 37",
        }

    def _row(self, tables: Sequence[np.ndarray]) -> Row:
        return {column: mean_iou(each) for column, each in zip(self.columns, zip(*tables, strict=True), strict=True)}


class Joints:
    """PCK of JHMDB, without the given frame.

    The common scripts take each joint over the frames of all videos, and the mean over joints; the paper the share of
    all joints of a video, and the mean over videos.
    """

    columns = tuple(f"{copy}PCK@{threshold}" for copy in ("", _COPY) for threshold in _THRESHOLDS)

    def __init__(self) -> None:
        self._distances: list[list[np.ndarray]] = [[], []]

    def add(self, track: PointTrack) -> Row:
        truth = track.sequence.points[1 : len(track.points)]
        copied = np.broadcast_to(track.points[0], truth.shape)
        each = [joint_distances(found, truth) for found in (track.points[1 : 1 + len(truth)], copied)]
        if np.isnan(each[0]).all():
            raise VideoError(f"{track.sequence.name}: no joint of the first frame is known in a later one")
        for kept, distances in zip(self._distances, each, strict=True):
            kept.append(distances)
        return self._row([[distances] for distances in each], pck_by_video)

    def mean(self) -> Row:
        return self._row(self._distances, pck) | {SEQUENCES: self._row(self._distances, pck_by_video)}

    def means(self) -> dict[str, str]:
        return {
            "mean": "by joint over the frames of all videos, as in the common scripts",
            SEQUENCES: "over videos, all joints of a video together, Eq. 38",
        }

    def _row(self, both: list[list[np.ndarray]], measure: Callable[[list[np.ndarray], float], float]) -> Row:
        widest = max(d.shape[1] for d in both[0])
        padded = [[np.pad(d, ((0, 0), (0, widest - d.shape[1])), constant_values=np.nan) for d in ds] for ds in both]
        values = [measure(distances, threshold) for distances in padded for threshold in _THRESHOLDS]
        return dict(zip(self.columns, values, strict=True))


def scores_for(kind: str) -> Scores:
    """Empty scores of this set."""
    made: dict[str, Scores] = {"davis": Objects(), "vip": Parts()}
    return made.get(kind, Joints())


def _truths(sequence: MaskSequence, numbers: range) -> Iterator[tuple[int, np.ndarray]]:
    """Those of the frames that have a mask."""
    for number in numbers:
        truth = sequence.mask(number)
        if truth is not None:
            yield number, truth


def _object(values: np.ndarray) -> Row:
    """Scores of one object from J and F of each frame, found and copied (T, 4)."""
    j, f = (statistics(values[:, i]) for i in (0, 1))
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


def _means(rows: list[Row], columns: tuple[str, ...]) -> Row:
    return {column: float(np.mean([row[column] for row in rows])) for column in columns}
