"""Frame mAP of action detection, as AVA computes it.

Pascal VOC's average precision: within a frame and an action, detections in descending score each take the annotated box
that they overlap most, if the IoU is at least 0.5 and the box is still free; otherwise they are false positives.
Precision is made monotone and integrated over recall. The public evaluation (ActivityNet's, from TensorFlow's object
detection) ranks later detections of equal scores first, as is done here. It uses at most 50 detections per frame; the
papers' numbers come from SlowFast's copy, which uses all.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from stillmotion.data.datasets.ava import BoxTable, KeyframeId
from stillmotion.functional.boxes import box_iou

ACTIVITYNET_MAX_DETECTIONS = 50  # detections per frame in ActivityNet's script


def frame_average_precision(
    targets: BoxTable,
    predictions: BoxTable,
    classes: Collection[int],
    *,
    excluded: Collection[KeyframeId] = (),
    iou: float = 0.5,
    max_detections: int = 0,
) -> dict[int, float]:
    """Compute the average precision of each class.

    Args:
        targets: Annotated boxes with their actions.
        predictions: Detected boxes with their actions and scores.
        classes: Classes to evaluate; boxes of other classes are ignored.
        excluded: Key frames that do not count.
        iou: Minimum overlap of a detection with an annotated box.
        max_detections: Use only this many detections per frame, highest scores first; 0 uses all.

    Returns:
        Average precision by class; NaN where nothing is annotated.
    """
    chosen = list(classes)
    targets, predictions = targets.drop(excluded), predictions.drop(excluded)
    targets = targets.select(np.isin(targets.actions, chosen))
    area = (predictions.boxes[:, 2] > predictions.boxes[:, 0]) & (predictions.boxes[:, 3] > predictions.boxes[:, 1])
    predictions = predictions.select(np.isin(predictions.actions, chosen) & area)
    numbers: dict[KeyframeId, int] = {}
    frames = [
        np.array([numbers.setdefault(key, len(numbers)) for key in rows.keyframes], int)
        for rows in (targets, predictions)
    ]
    if max_detections:
        highest = _highest_scoring(frames[1], predictions.scores, max_detections)
        predictions, frames[1] = predictions.select(highest), frames[1][highest]
    scores = {}
    for action in chosen:
        annotated, detected = targets.actions == action, predictions.actions == action
        if not annotated.any():
            scores[action] = math.nan
            continue
        hits = _true_positives(
            frames[0][annotated],
            targets.boxes[annotated],
            frames[1][detected],
            predictions.boxes[detected],
            predictions.scores[detected],
            iou,
        )
        scores[action] = detection_average_precision(predictions.scores[detected], hits, int(annotated.sum()))
    return scores


def mean_average_precision(scores: Mapping[int, float]) -> float:
    """Return the mean over the annotated classes; NaN without any."""
    known = [score for score in scores.values() if not math.isnan(score)]
    return float(np.mean(known)) if known else math.nan


def detection_average_precision(scores: np.ndarray, hits: np.ndarray, num_annotations: int) -> float:
    """Compute the area under the monotone precision-recall curve.

    Args:
        scores: Scores of the detections, (N,).
        hits: Whether each detection is a true positive, (N,).
        num_annotations: Number of annotated boxes.

    Returns:
        Average precision.
    """
    order = np.argsort(scores, kind="stable")[::-1]
    true = np.cumsum(hits[order])
    recall = np.concatenate([[0.0], true / num_annotations])
    precision = np.maximum.accumulate((true / np.arange(1, len(true) + 1))[::-1])[::-1]
    return float(np.sum(np.diff(recall) * precision))


def _true_positives(
    target_frames: np.ndarray,
    target_boxes: np.ndarray,
    frames: np.ndarray,
    boxes: np.ndarray,
    scores: np.ndarray,
    iou: float,
) -> np.ndarray:
    """Return which detections (N,) of one action are the first to take an annotated box."""
    if not len(boxes):
        return np.zeros(0, bool)
    # One row of annotated boxes per frame, padded with boxes that nothing overlaps.
    by_frame = np.argsort(target_frames, kind="stable")
    annotated, first, count = np.unique(target_frames[by_frame], return_index=True, return_counts=True)
    column = np.arange(len(by_frame)) - np.repeat(first, count)
    rows = np.full((len(annotated) + 1, count.max()), -1)
    rows[np.repeat(np.arange(len(annotated)), count), column] = by_frame
    padded = np.concatenate([target_boxes, np.zeros((1, 4))])[rows]
    row = np.minimum(np.searchsorted(annotated, frames), len(annotated) - 1)
    row = np.where(annotated[row] == frames, row, len(annotated))  # the last row has no box
    overlaps = box_iou(torch.from_numpy(boxes[:, None]), torch.from_numpy(padded[row]))[:, 0].numpy()
    best = overlaps.argmax(1)
    near = overlaps[np.arange(len(boxes)), best] >= iou
    taken = rows[row, best]
    order = np.argsort(-scores, kind="stable")
    order = order[near[order]]
    _, firsts = np.unique(taken[order], return_index=True)
    hits = np.zeros(len(boxes), bool)
    hits[order[firsts]] = True
    return hits


def _highest_scoring(frames: np.ndarray, scores: np.ndarray, max_detections: int) -> np.ndarray:
    """Return the indices of the rows that are among the highest of their frame, in their order."""
    order = np.lexsort((-scores, frames))
    _, first, count = np.unique(frames[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    return np.sort(order[rank < max_detections])


def detection_metrics(
    targets: BoxTable, predictions: BoxTable, classes: Mapping[int, str], failed: Collection[str]
) -> dict[str, Any]:
    """Compute mAP and AP by action, with the number of boxes they were measured on.

    Args:
        targets: Annotated boxes.
        predictions: Detected boxes.
        classes: Names of the classes by number.
        failed: Videos that could not be read and do not count.

    Returns:
        Metrics by name; scores are None where nothing is annotated.
    """
    targets, predictions = targets.drop(videos=failed), predictions.drop(videos=failed)
    scores = frame_average_precision(targets, predictions, classes)
    counted = np.isin(targets.actions, list(classes))
    return {
        "mAP": _none_if_nan(mean_average_precision(scores)),
        f"mAP_top{ACTIVITYNET_MAX_DETECTIONS}": _none_if_nan(
            mean_average_precision(
                frame_average_precision(targets, predictions, classes, max_detections=ACTIVITYNET_MAX_DETECTIONS)
            )
        ),
        "AP": {classes[action]: _none_if_nan(score) for action, score in scores.items()},
        "num_annotations": {name: int((targets.actions == action).sum()) for action, name in classes.items()},
        "num_annotated_key_frames": len({key for key, real in zip(targets.keyframes, counted, strict=True) if real}),
        "num_detections": len(predictions.keyframes),
    }


def _none_if_nan(score: float) -> float | None:
    return None if math.isnan(score) else score
