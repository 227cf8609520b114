"""Metrics of label propagation: J and F of DAVIS, mean IoU of VIP, PCK of JHMDB.

Shapes: T frames of H×W pixels, J joints.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import cv2
import numpy as np
import torch

from stillmotion.errors import StillmotionError
from stillmotion.functional.classification import confusion_matrix

BOUNDARY_TOLERANCE = 0.008  # largest distance of matching boundaries, relative to the image diagonal
_PERSON_SIZE_RATIO = 0.6  # size of a person, relative to the diagonal of the box of the joints


def region_similarity(prediction: np.ndarray, target: np.ndarray) -> float:
    """Compute J, the intersection over union of two masks.

    Args:
        prediction: Predicted mask, (H, W).
        target: True mask, (H, W).

    Returns:
        J, from 0 to 1; 1 if both masks are empty.
    """
    prediction, target = _check_masks(prediction, target)
    union = np.count_nonzero(prediction | target)
    return np.count_nonzero(prediction & target) / union if union else 1.0


def boundary_f_measure(prediction: np.ndarray, target: np.ndarray, *, tolerance: float = BOUNDARY_TOLERANCE) -> float:
    """Compute F, the harmonic mean of precision and recall of a mask's boundary, as DAVIS does.

    A boundary pixel is correct if the other boundary comes within a disk of ceil(tolerance · diagonal) pixels. A mask
    without boundary matches only another mask without boundary.

    Args:
        prediction: Predicted mask, (H, W).
        target: True mask, (H, W).
        tolerance: Radius of the disk, relative to the image diagonal.

    Returns:
        F, from 0 to 1.
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
    """Return the pixels of a mask (H, W) that differ from the next one to the right, below, or diagonally below.

    In the last row only the right neighbor counts, in the last column only the one below, in the corner none.
    """
    mask = mask.astype(bool)
    edge = np.zeros_like(mask)
    edge[:, :-1] |= mask[:, :-1] ^ mask[:, 1:]
    edge[:-1] |= mask[:-1] ^ mask[1:]
    edge[:-1, :-1] |= mask[:-1, :-1] ^ mask[1:, 1:]
    return edge


class DavisStatistics(NamedTuple):
    """Statistics of a measure over the frames of one object: mean, fraction above ½, first minus last quarter."""

    mean: float
    recall: float
    decay: float


def davis_statistics(values: np.ndarray) -> DavisStatistics:
    """Compute DAVIS's statistics of a measure over time, (T,)."""
    bounds = np.round(np.linspace(1, len(values), 5) + 1e-10).astype(int) - 1
    quarters = [values[bounds[i] : bounds[i + 1] + 1] for i in (0, 3)]
    return DavisStatistics(
        float(values.mean()), float((values > 0.5).mean()), float(quarters[0].mean() - quarters[1].mean())
    )


def pixel_confusion_matrix(prediction: np.ndarray, target: np.ndarray, num_classes: int) -> np.ndarray:
    """Count the pixels of each true class (rows) that were predicted as each class (columns).

    Args:
        prediction: Predicted classes, (H, W).
        target: True classes, (H, W).
        num_classes: Number of classes (C).

    Returns:
        Counts, (C, C).

    Raises:
        StillmotionError: If the shapes differ, or a class is out of range.
    """
    if prediction.shape != target.shape:
        raise StillmotionError(f"Masks have shapes {prediction.shape} and {target.shape}; they must be equal.")
    largest = max(prediction.max(), target.max())
    if largest >= num_classes:
        raise StillmotionError(f"Class {largest} occurs in a mask, but there are only {num_classes} classes from 0.")
    flat = [torch.from_numpy(mask.astype(np.int64).ravel()) for mask in (prediction, target)]
    return confusion_matrix(flat[0], flat[1], num_classes).numpy()


def class_iou(table: np.ndarray) -> np.ndarray:
    """Compute the IoU of each class from a confusion matrix (C, C); NaN where a class does not occur."""
    intersection = np.diag(table)
    union = table.sum(0) + table.sum(1) - intersection
    return np.divide(intersection, union, out=np.full(len(table), np.nan), where=union > 0)


def mean_iou(tables: Iterable[np.ndarray]) -> float:
    """Compute the mean over classes of the mean IoU over the videos in which the class occurs (Eq. 37).

    For a single table, the sum over all videos, it is the mean IoU of the common scripts.

    Args:
        tables: Confusion matrix of each video, (C, C).

    Returns:
        Mean IoU.
    """
    each = np.stack([class_iou(table) for table in tables])
    return float(np.nanmean(each[:, ~np.isnan(each).all(0)], axis=0).mean())


def normalized_keypoint_distances(prediction: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Compute distances between joints, divided by the size of the person in the frame.

    The size is 0.6 times the diagonal of the box of the frame's visible joints.

    Args:
        prediction: Predicted joints, (T, J, 2).
        target: True joints, (T, J, 2); NaN where missing.

    Returns:
        Distances, (T, J); NaN where a joint is missing in either.
    """
    target = np.where(np.isnan(prediction).any(-1, keepdims=True), np.nan, target)
    distances = np.full(target.shape[:2], np.nan)
    for t in range(len(target)):
        visible = ~np.isnan(target[t]).any(-1)
        size = _PERSON_SIZE_RATIO * np.hypot(*np.ptp(target[t, visible], axis=0)) if visible.any() else 0.0
        if size > 0:
            distances[t, visible] = np.linalg.norm(prediction[t, visible] - target[t, visible], axis=-1) / size
    return distances


def pck_per_joint(distances: Iterable[np.ndarray], threshold: float) -> float:
    """Compute PCK of each joint over the frames of all videos, averaged over joints.

    Args:
        distances: Normalized distances of each video, (T, J).
        threshold: Largest distance of a correct joint.

    Returns:
        PCK, from 0 to 1; NaN without joints.
    """
    each = np.concatenate(list(distances))
    each = each[:, ~np.isnan(each).all(0)]
    if each.size == 0:
        return math.nan
    return float(np.mean([(joint[~np.isnan(joint)] <= threshold).mean() for joint in each.T]))


def pck_per_video(distances: Iterable[np.ndarray], threshold: float) -> float:
    """Compute PCK of all joints of each video, averaged over videos (Eq. 38).

    Args:
        distances: Normalized distances of each video, (T, J).
        threshold: Largest distance of a correct joint.

    Returns:
        PCK, from 0 to 1.
    """
    return float(np.mean([(each[~np.isnan(each)] <= threshold).mean() for each in distances]))


def _check_masks(prediction: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if prediction.shape != target.shape or target.ndim != 2:
        raise StillmotionError(
            f"Masks have shapes {prediction.shape} and {target.shape}; give two of one shape (H, W)."
        )
    return prediction.astype(bool), target.astype(bool)
