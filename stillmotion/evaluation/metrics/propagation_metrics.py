"""How well propagated labels fit: J and F of DAVIS, mean IoU of VIP, PCK of JHMDB.

Shapes: T frames of H×W pixels, J joints.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import cv2
import numpy as np

from stillmotion.errors import StillmotionError

BOUNDARY_TOLERANCE = 0.008  # of the image diagonal: how far apart boundaries still match
_PERSON_SIZE_RATIO = 0.6  # of the diagonal of the joints' box: the size of a person


def region_similarity(prediction: np.ndarray, target: np.ndarray) -> float:
    """J: intersection over union of two masks (H, W), 1 where both are empty."""
    prediction, target = _check_masks(prediction, target)
    union = np.count_nonzero(prediction | target)
    return np.count_nonzero(prediction & target) / union if union else 1.0


def boundary_f_measure(prediction: np.ndarray, target: np.ndarray, *, tolerance: float = BOUNDARY_TOLERANCE) -> float:
    """F: harmonic mean of precision and recall of the boundary of a mask (H, W), as DAVIS measures it.

    A boundary pixel is right if the other boundary comes within a disk of ceil(bound · diagonal) pixels. A mask without
    boundary matches another one like it, and nothing else.
    """
    prediction, target = _check_masks(prediction, target)
    radius = math.ceil(tolerance * math.hypot(*target.shape))
    span = np.arange(-radius, radius + 1)
    disk = (span[:, None] ** 2 + span**2 <= radius**2).astype(np.uint8)
    edges = [mask_boundary(prediction), mask_boundary(target)]
    near = [cv2.dilate(edge.astype(np.uint8), disk).astype(bool) for edge in edges]
    counts = [np.count_nonzero(edge) for edge in edges]
    if 0 in counts:
        return float(counts[0] == counts[1])
    precision = np.count_nonzero(edges[0] & near[1]) / counts[0]
    recall = np.count_nonzero(edges[1] & near[0]) / counts[1]
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def mask_boundary(mask: np.ndarray) -> np.ndarray:
    """Pixels of a mask (H, W) that differ from the next one to the right, below, or diagonally below.

    In the last row only the right neighbour counts, in the last column only the one below, in the corner none.
    """
    mask = mask.astype(bool)
    edge = np.zeros_like(mask)
    edge[:, :-1] |= mask[:, :-1] ^ mask[:, 1:]
    edge[:-1] |= mask[:-1] ^ mask[1:]
    edge[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return edge


class DavisStatistics(NamedTuple):
    """Of a measure over the frames of one object: mean, share above ½, and first quarter less last quarter."""

    mean: float
    recall: float
    decay: float


def davis_statistics(values: np.ndarray) -> DavisStatistics:
    """DAVIS's summary of a measure's values over time."""
    places = np.round(np.linspace(1, len(values), 5) + 1e-10).astype(int) - 1
    quarters = [values[places[i] : places[i + 1] + 1] for i in (0, 3)]
    return DavisStatistics(
        float(values.mean()), float((values > 0.5).mean()), float(quarters[0].mean() - quarters[1].mean())
    )


def pixel_confusion_matrix(prediction: np.ndarray, target: np.ndarray, num_classes: int) -> np.ndarray:
    """How many pixels of each true class (rows) were given each class (columns), (classes, classes)."""
    if prediction.shape != target.shape:
        raise StillmotionError(f"masks of {prediction.shape} and {target.shape} pixels; they must be of one size")
    if max(prediction.max(), target.max()) >= num_classes:
        raise StillmotionError(
            f"class {max(prediction.max(), target.max())} in a mask; there are {num_classes} classes from 0"
        )
    pairs = target.astype(np.int64) * num_classes + prediction
    return np.bincount(pairs.ravel(), minlength=num_classes**2).reshape(num_classes, num_classes)


def class_iou(table: np.ndarray) -> np.ndarray:
    """Intersection over union of each class in a `confusion`, (classes,); NaN where it is neither true nor found."""
    both = np.diag(table)
    either = table.sum(0) + table.sum(1) - both
    return np.divide(both, either, out=np.full(len(table), np.nan), where=either > 0)


def mean_iou(tables: Iterable[np.ndarray]) -> float:
    """The mean over classes of their mean over videos' tables (Eq. 37), each over those in which the class occurs.

    Of the sum of all tables alone, it is the mean IoU of the common scripts.
    """
    each = np.stack([class_iou(table) for table in tables])
    return float(np.nanmean(each[:, ~np.isnan(each).all(0)], axis=0).mean())


def normalized_keypoint_distances(prediction: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Distances (T, J) between found and true joints (T, J, 2), over the size of the person in the frame; NaN: missing.

    The size is 0.6 times the diagonal of the box of the frame's visible joints.
    """
    target = np.where(np.isnan(prediction).any(-1, keepdims=True), np.nan, target)
    distances = np.full(target.shape[:2], np.nan)
    for t in range(len(target)):
        seen = ~np.isnan(target[t]).any(-1)
        size = _PERSON_SIZE_RATIO * np.hypot(*np.ptp(target[t, seen], axis=0)) if seen.any() else 0.0
        if size > 0:
            distances[t, seen] = np.linalg.norm(prediction[t, seen] - target[t, seen], axis=-1) / size
    return distances


def pck_per_joint(distances: Iterable[np.ndarray], threshold: float) -> float:
    """Share of joints within the threshold: of each joint over all videos' frames (T, J), then the mean over joints."""
    each = np.concatenate(list(distances))
    each = each[:, ~np.isnan(each).all(0)]
    if each.size == 0:
        return math.nan
    return float(np.mean([(joint[~np.isnan(joint)] <= threshold).mean() for joint in each.T]))


def pck_per_video(distances: Iterable[np.ndarray], threshold: float) -> float:
    """Share of all joints in a video's frames (T, J) within the threshold, then the mean over videos (Eq. 38)."""
    return float(np.mean([(each[~np.isnan(each)] <= threshold).mean() for each in distances]))


def _check_masks(prediction: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if prediction.shape != target.shape or target.ndim != 2:
        raise StillmotionError(f"masks of {prediction.shape} and {target.shape} pixels; give two of one size (H, W)")
    return prediction.astype(bool), target.astype(bool)
