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

from stillmotion.data.keyframes import BoxRows, Key
from stillmotion.functional.boxes import overlap

LIMIT = 50  # detections in a frame that ActivityNet's script looks at


def frame_ap(
    truth: BoxRows,
    found: BoxRows,
    classes: Collection[int],
    *,
    excluded: Collection[Key] = (),
    iou: float = 0.5,
    most: int = 0,
) -> dict[int, float]:
    """Average precision of each class; NaN where nothing is annotated.

    truth, found: rows of actions of these classes; others are left out. excluded: key frames that do not count.
    most: only so many of a frame's detections, the highest first; 0 is all.
    """
    chosen = list(classes)
    truth, found = truth.without(excluded), found.without(excluded)
    truth = truth.where(np.isin(truth.actions, chosen))
    area = (found.boxes[:, 2] > found.boxes[:, 0]) & (found.boxes[:, 3] > found.boxes[:, 1])
    found = found.where(np.isin(found.actions, chosen) & area)
    numbers: dict[Key, int] = {}
    frames = [np.array([numbers.setdefault(key, len(numbers)) for key in rows.keys], int) for rows in (truth, found)]
    if most:
        kept = _highest(frames[1], found.scores, most)
        found, frames[1] = found.where(kept), frames[1][kept]
    scores = {}
    for action in chosen:
        annotated, detected = truth.actions == action, found.actions == action
        if not annotated.any():
            scores[action] = math.nan
            continue
        hits = _hits(
            frames[0][annotated],
            truth.boxes[annotated],
            frames[1][detected],
            found.boxes[detected],
            found.scores[detected],
            iou,
        )
        scores[action] = average_precision(found.scores[detected], hits, int(annotated.sum()))
    return scores


def mean_ap(scores: Mapping[int, float]) -> float:
    """The mean over the classes that are annotated."""
    known = [score for score in scores.values() if not math.isnan(score)]
    return float(np.mean(known)) if known else math.nan


def average_precision(scores: np.ndarray, hits: np.ndarray, annotated: int) -> float:
    """The area under the monotone precision-recall curve of detections (N,), some of which are hits."""
    order = np.argsort(scores, kind="stable")[::-1]
    true = np.cumsum(hits[order])
    recall = np.concatenate([[0.0], true / annotated])
    precision = np.maximum.accumulate((true / np.arange(1, len(true) + 1))[::-1])[::-1]
    return float(np.sum(np.diff(recall) * precision))


def _hits(
    truth_frames: np.ndarray, truth: np.ndarray, frames: np.ndarray, boxes: np.ndarray, scores: np.ndarray, iou: float
) -> np.ndarray:
    """Which detections (N,) of one action are the first to take an annotated box."""
    if not len(boxes):
        return np.zeros(0, bool)
    # Each frame's annotated boxes in a row, padded with boxes that nothing overlaps.
    by_frame = np.argsort(truth_frames, kind="stable")
    there, first, count = np.unique(truth_frames[by_frame], return_index=True, return_counts=True)
    column = np.arange(len(by_frame)) - np.repeat(first, count)
    rows = np.full((len(there) + 1, count.max()), -1)
    rows[np.repeat(np.arange(len(there)), count), column] = by_frame
    padded = np.concatenate([truth, np.zeros((1, 4))])[rows]
    place = np.minimum(np.searchsorted(there, frames), len(there) - 1)
    place = np.where(there[place] == frames, place, len(there))  # the last row has no box
    shares = overlap(torch.from_numpy(boxes[:, None]), torch.from_numpy(padded[place]))[:, 0].numpy()
    best = shares.argmax(1)
    near = shares[np.arange(len(boxes)), best] >= iou
    taken = rows[place, best]
    order = np.argsort(-scores, kind="stable")
    order = order[near[order]]
    _, firsts = np.unique(taken[order], return_index=True)
    hits = np.zeros(len(boxes), bool)
    hits[order[firsts]] = True
    return hits


def _highest(frames: np.ndarray, scores: np.ndarray, most: int) -> np.ndarray:
    """Numbers of the rows that are among the highest of their frame, in their order."""
    order = np.lexsort((-scores, frames))
    _, first, count = np.unique(frames[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(first, count)
    return np.sort(order[rank < most])


def detection_results(
    truth: BoxRows, found: BoxRows, classes: Mapping[int, str], broken: Collection[str]
) -> dict[str, Any]:
    """mAP, AP by the action's name (None where nothing is annotated), and what they were measured on.

    broken: videos that could not be read, and do not count.
    """
    truth, found = truth.without(videos=broken), found.without(videos=broken)
    scores = frame_ap(truth, found, classes)
    counted = np.isin(truth.actions, list(classes))
    return {
        "mAP": _known(mean_ap(scores)),
        f"mAP of {LIMIT} a frame": _known(mean_ap(frame_ap(truth, found, classes, most=LIMIT))),
        "AP": {classes[action]: _known(score) for action, score in scores.items()},
        "annotated": {name: int((truth.actions == action).sum()) for action, name in classes.items()},
        "annotated_key_frames": len({key for key, real in zip(truth.keys, counted, strict=True) if real}),
        "detections": len(found.keys),
    }


def _known(score: float) -> float | None:
    return None if math.isnan(score) else score
