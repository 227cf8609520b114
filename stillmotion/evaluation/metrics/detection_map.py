"""Frame mAP of action detection, as AVA's own evaluation has it.

Pascal VOC's average precision: within a frame and an action, detections in descending score each take the annotated box
that they overlap most, if by 0.5 or more and if it is still free; else they are false. Precision is made monotone and
integrated over recall. The public evaluation (ActivityNet's, from TensorFlow's object detection) ranks later ones of
equal scores first, which is kept here. It looks at no more than 50 detections a frame; the papers' numbers come from
SlowFast's copy, which looks at all.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from stillmotion.data.datasets.ava import BoxTable, KeyframeId
from stillmotion.functional.boxes import box_iou

ACTIVITYNET_MAX_DETECTIONS = 50  # detections in a frame that ActivityNet's script looks at


def frame_average_precision(
    targets: BoxTable,
    predictions: BoxTable,
    classes: Collection[int],
    *,
    excluded: Collection[KeyframeId] = (),
    iou: float = 0.5,
    max_detections: int = 0,
) -> dict[int, float]:
    """Average precision of each class; NaN where nothing is annotated.

    targets, predictions: rows of actions of these classes; others are left out. excluded: key frames that do not count.
    max_detections: only so many of a frame's detections, the highest first; 0 is all.
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
        kept = _highest_scoring(frames[1], predictions.scores, max_detections)
        predictions, frames[1] = predictions.select(kept), frames[1][kept]
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
    """The mean over the classes that are annotated."""
    known = [score for score in scores.values() if not math.isnan(score)]
    return float(np.mean(known)) if known else math.nan


def detection_average_precision(scores: np.ndarray, hits: np.ndarray, num_annotations: int) -> float:
    """The area under the monotone precision-recall curve of detections (N,), some of which are hits."""
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
    """Which detections (N,) of one action are the first to take an annotated box."""
    if not len(boxes):
        return np.zeros(0, bool)
    # Each frame's annotated boxes in a row, padded with boxes that nothing overlaps.
    by_frame = np.argsort(target_frames, kind="stable")
    there, first, count = np.unique(target_frames[by_frame], return_index=True, return_counts=True)
    column = np.arange(len(by_frame)) - np.repeat(first, count)
    rows = np.full((len(there) + 1, count.max()), -1)
    rows[np.repeat(np.arange(len(there)), count), column] = by_frame
    padded = np.concatenate([target_boxes, np.zeros((1, 4))])[rows]
    place = np.minimum(np.searchsorted(there, frames), len(there) - 1)
    place = np.where(there[place] == frames, place, len(there))  # the last row has no box
    shares = box_iou(torch.from_numpy(boxes[:, None]), torch.from_numpy(padded[place]))[:, 0].numpy()
    best = shares.argmax(1)
    near = shares[np.arange(len(boxes)), best] >= iou
    taken = rows[place, best]
    order = np.argsort(-scores, kind="stable")
    order = order[near[order]]
    _, firsts = np.unique(taken[order], return_index=True)
    hits = np.zeros(len(boxes), bool)
    hits[order[firsts]] = True
    return hits


def _highest_scoring(frames: np.ndarray, scores: np.ndarray, max_detections: int) -> np.ndarray:
    """Numbers of the rows that are among the highest of their frame, in their order."""
    order = np.lexsort((-scores, frames))
    _, first, count = np.unique(frames[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    return np.sort(order[rank < max_detections])


def detection_metrics(
    targets: BoxTable, predictions: BoxTable, classes: Mapping[int, str], failed: Collection[str]
) -> dict[str, Any]:
    """mAP, AP by the action's name (None where nothing is annotated), and what they were measured on.

    failed: videos that could not be read, and do not count.
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
