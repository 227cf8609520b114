"""Frame mAP against a literal reference that handles one detection and one threshold at a time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.data.datasets.ava import BoxTable
from stillmotion.evaluation.metrics.detection_map import (
    detection_average_precision,
    detection_metrics,
    frame_average_precision,
    mean_average_precision,
)

A, B, C = ("a", 902), ("a", 903), ("b", 902)
BOX, FAR = (0.1, 0.1, 0.5, 0.5), (0.6, 0.6, 0.9, 0.9)


def rows(*lines):
    if not lines:
        return BoxTable([], np.zeros((0, 4)), np.zeros(0, int), np.zeros(0))
    keys, boxes, actions, scores = zip(*lines, strict=True)
    return BoxTable(list(keys), np.array(boxes, float), np.array(actions), np.array(scores, float))


def literal_overlap(a, b):
    wide, tall = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or tall <= 0:
        return 0.0
    area, other_area = ((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
    return wide * tall / (area + other_area - wide * tall)


def literal_ap(truth, result, action, excluded=()):
    """AP of one action from lists of (key, box, action, score)."""
    truth = [row for row in truth if row[2] == action and row[0] not in excluded]
    result = [row for row in result if row[2] == action and row[0] not in excluded]
    result = [row for row in result if row[1][2] > row[1][0] and row[1][3] > row[1][1]]
    if not truth:
        return math.nan
    marks = {}
    for key in dict.fromkeys(row[0] for row in result):
        boxes = [row[1] for row in truth if row[0] == key]
        free = [True] * len(boxes)
        indices = [i for i, row in enumerate(result) if row[0] == key]
        for i in sorted(indices, key=lambda i: -result[i][3]):
            shares = [literal_overlap(result[i][1], box) for box in boxes]
            best = shares.index(max(shares)) if shares else 0
            marks[i] = bool(shares) and shares[best] >= 0.5 and free[best]
            if marks[i]:
                free[best] = False
    # Of equal scores, later ones are ranked first.
    ranked = sorted(range(len(result)), key=lambda i: (-result[i][3], -i))
    points, true = [], 0
    for rank, i in enumerate(ranked, 1):
        true += marks[i]
        points.append((true / len(truth), true / rank))
    total, before = 0.0, 0.0
    for position, (recall, _) in enumerate(points):
        if recall > before:
            total += (recall - before) * max(precision for _, precision in points[position:])
            before = recall
    return total


def equal_ap(a, b):
    return (math.isnan(a) and math.isnan(b)) or a == pytest.approx(b, abs=1e-12)


CASES = {
    "one found": ([(A, BOX, 1, 1)], [(A, BOX, 1, 0.3)], 1.0),
    "found twice": ([(A, BOX, 1, 1)], [(A, BOX, 1, 0.9), (A, BOX, 1, 0.8)], 1.0),
    "found twice, a wrong one before": ([(A, BOX, 1, 1)], [(A, FAR, 1, 0.9), (A, BOX, 1, 0.8)], 0.5),
    "the same score twice": ([(A, BOX, 1, 1)], [(A, BOX, 1, 0.9), (A, BOX, 1, 0.9)], 0.5),
    "in another frame": ([(A, BOX, 1, 1)], [(B, BOX, 1, 0.9)], 0.0),
    "in a frame without annotations": ([(A, BOX, 1, 1)], [(C, BOX, 1, 0.9), (A, BOX, 1, 0.8)], 0.5),
    "half of the frames missing": ([(A, BOX, 1, 1), (B, BOX, 1, 1)], [(A, BOX, 1, 0.9)], 0.5),
    "another action": ([(A, BOX, 1, 1), (A, BOX, 2, 1)], [(A, BOX, 2, 0.9)], 0.0),
    "nothing found": ([(A, BOX, 1, 1)], [], 0.0),
    "without area": ([(A, BOX, 1, 1)], [(A, (0.5, 0.1, 0.1, 0.5), 1, 0.9), (A, BOX, 1, 0.8)], 1.0),
    # Both overlap the first box most; the second detection is not matched with the other box instead.
    "the nearest is taken": (
        [(A, (0, 0, 1, 1), 1, 1), (A, (0, 0, 1, 0.6), 1, 1)],
        [(A, (0, 0, 1, 0.95), 1, 0.9), (A, (0, 0, 1, 0.9), 1, 0.8)],
        0.5,
    ),
    "overlapping by half": ([(A, (0, 0, 1, 1), 1, 1)], [(A, (0, 0, 1, 0.5), 1, 0.9)], 1.0),
    "nothing annotated": ([(A, BOX, 2, 1)], [(A, BOX, 1, 0.9)], math.nan),
}


@pytest.mark.parametrize("case", CASES)
def test_constructed_cases_have_the_value_that_is_worked_out_by_hand(case):
    truth, result, expected = CASES[case]
    assert equal_ap(frame_average_precision(rows(*truth), rows(*result), [1])[1], expected)
    assert equal_ap(literal_ap(truth, result, 1), expected)


def test_a_longer_ranking_has_the_area_under_its_monotone_precision():
    # hits at ranks 1, 3, 4 of 5 annotated: precisions 1, 2/3, 3/4, of which the second rises to 3/4
    hits = np.array([True, False, True, True, False])
    assert detection_average_precision(np.array([0.9, 0.8, 0.7, 0.6, 0.5]), hits, 5) == pytest.approx(
        (1 + 0.75 + 0.75) / 5
    )


def sets_of_rows(scores):
    corner = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 3), st.integers(1, 3))
    box = corner.map(lambda c: (c[0] / 6, c[1] / 6, (c[0] + c[2]) / 6, (c[1] + c[3]) / 6))
    return st.lists(st.tuples(st.sampled_from([A, B, C]), box, st.sampled_from([1, 2, 7]), scores), max_size=12)


@given(
    sets_of_rows(st.just(1.0)), sets_of_rows(st.sampled_from([0.2, 0.5, 0.5, 0.9])), st.sampled_from([(), (A,), (A, C)])
)
def test_any_rows_have_the_score_of_the_literal_reference(truth, result, excluded):
    scores = frame_average_precision(rows(*truth), rows(*result), [1, 2], excluded=excluded)
    assert all(equal_ap(scores[action], literal_ap(truth, result, action, excluded)) for action in (1, 2))


def test_the_mean_is_over_annotated_actions_alone():
    assert mean_average_precision({1: 0.5, 2: math.nan, 3: 1.0}) == 0.75
    assert math.isnan(mean_average_precision({1: math.nan}))


def test_excluded_key_frames_count_neither_as_found_nor_as_missed():
    truth = rows((A, BOX, 1, 1), (B, BOX, 1, 1))
    result = rows((A, BOX, 1, 0.5), (B, FAR, 1, 0.9))
    assert frame_average_precision(truth, result, [1])[1] == 0.25
    assert frame_average_precision(truth, result, [1], excluded={B})[1] == 1


def test_a_limit_keeps_the_highest_of_each_frame():
    truth = rows((A, BOX, 1, 1), (B, BOX, 1, 1))
    result = rows((A, BOX, 1, 0.1), (A, FAR, 2, 0.9), (A, FAR, 2, 0.8), (B, BOX, 1, 0.3), (B, FAR, 2, 0.2))
    assert frame_average_precision(truth, result, [1, 2], max_detections=2)[1] == 0.5
    assert frame_average_precision(truth, result, [1, 2], max_detections=3)[1] == 1
    assert frame_average_precision(truth, result, [1], max_detections=1)[1] == 1  # other actions are not counted


def test_results_leave_out_videos_that_could_not_be_read():
    truth = rows((A, BOX, 1, 1), (C, BOX, 1, 1), (C, BOX, 9, 1))
    result = rows((A, BOX, 1, 0.5))
    results = detection_metrics(truth, result, {1: "walk", 2: "sit"}, ["b"])
    assert results["mAP"] == 1
    assert results["AP"] == {"walk": 1.0, "sit": None}
    assert results["num_annotations"] == {"walk": 1, "sit": 0}
    assert results["num_annotated_key_frames"] == 1
    assert detection_metrics(truth, result, {1: "walk"}, [])["mAP"] == 0.5
