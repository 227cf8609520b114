"""Edit, F1@k and accuracy against literal references."""

from functools import cache
from itertools import groupby, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.functional.segmentation_metrics import (
    F1_IOU_THRESHOLDS,
    ActionSegment,
    edit_score,
    find_segments,
    match_segments,
    segmentation_scores,
)

LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=24).map(np.array)
PAIRS = st.integers(1, 24).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(0, 3), min_size=n, max_size=n).map(np.array) for _ in range(2)))
)


def literal_segments(labels, background=()):
    result, at = [], 0
    for label, run in groupby(labels.tolist()):
        length = len(list(run))
        if label not in background:
            result.append((label, set(range(at, at + length))))
        at += length
    return result


def literal_distance(a, b):
    """Levenshtein distance by recursion."""

    @cache
    def distance(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(distance(i - 1, j) + 1, distance(i, j - 1) + 1, distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return distance(len(a), len(b))


def literal_f1(predicted, truth, overlap, background=()):
    """The published rule, on sets of frame numbers, over the videos of a set."""
    hits = false = missed = 0
    for p, t in zip(predicted, truth, strict=True):
        expected = literal_segments(t, background)
        free = [True] * len(expected)
        for label, frames in literal_segments(p, background):
            best, share = None, 0.0
            for position, (other, covered) in enumerate(expected):
                # The span of both, as in Eq. 41: for segments that touch it is their union.
                union = max(frames | covered) - min(frames | covered) + 1
                result = len(frames & covered) / union if other == label else 0.0
                if result > share:
                    best, share = position, result
            if best is not None and share >= overlap and free[best]:
                free[best] = False
                hits += 1
            else:
                false += 1
        missed += sum(free)
    precision, recall = hits / max(hits + false, 1), hits / max(hits + missed, 1)
    return 2 * precision * recall / (precision + recall) if hits else 0.0


def most_pairs(predicted, truth, overlap):
    """Size of the largest one-to-one matching of segments with equal labels that overlap enough, over all orders."""
    a, b = literal_segments(predicted), literal_segments(truth)
    good = [[x == y and len(p & q) / len(p | q) >= overlap for y, q in b] for x, p in a]
    if len(a) > len(b):
        good = [list(column) for column in zip(*good, strict=True)]
    width = len(good[0])
    return max(
        sum(row[k] for row, k in zip(good, order, strict=True)) for order in permutations(range(width), len(good))
    )


@given(LABELS, st.sets(st.integers(0, 3)))
def test_segments_are_the_longest_runs_without_background(labels, background):
    result = find_segments(labels, background=background)
    assert [(s.label, set(range(s.start, s.stop))) for s in result] == literal_segments(labels, background)


def test_no_frames_have_no_segments():
    assert find_segments(np.array([], np.int64)) == []


@given(LABELS, LABELS, st.sets(st.integers(0, 3)))
def test_edit_is_levenshteins_distance_over_the_longer_order(predicted, truth, background):
    a, b = ([label for label, _ in literal_segments(y, background)] for y in (predicted, truth))
    longest = max(len(a), len(b))
    expected = 1 - literal_distance(a, b) / longest if longest else 1.0
    result = edit_score(find_segments(predicted, background=background), find_segments(truth, background=background))
    assert result == pytest.approx(expected)


@given(PAIRS, st.sets(st.integers(0, 3)))
def test_scores_are_those_of_the_literal_reference(pair, background):
    predicted, truth = ([half, half[::-1]] for half in pair)
    result = segmentation_scores(predicted, truth, background=background)
    for overlap in F1_IOU_THRESHOLDS:
        expected = 100 * literal_f1(predicted, truth, overlap, background)
        assert result[f"f1@{round(100 * overlap)}"] == pytest.approx(expected)
    assert result["accuracy"] == pytest.approx(100 * np.mean(pair[0] == pair[1]))


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(*(st.lists(st.integers(0, 2), min_size=n, max_size=n),) * 2)))
def test_at_an_overlap_of_half_the_rule_finds_as_many_as_any_matching_could(pair):
    predicted, truth = map(np.array, pair)
    if max(len(find_segments(predicted)), len(find_segments(truth))) > 7:
        return
    assert match_segments(find_segments(predicted), find_segments(truth), min_iou=0.5).true_positives == most_pairs(
        predicted, truth, 0.5
    )


def test_a_perfect_prediction_scores_a_hundred_everywhere():
    truth = [np.repeat([0, 1, 0, 2], [3, 1, 4, 2]), np.array([3])]
    assert set(segmentation_scores(truth, truth).values()) == {100.0}


def test_a_split_prediction_is_one_hit_and_one_false_alarm():
    truth = np.array([1] * 10)
    predicted = np.array([1] * 6 + [0] + [1] * 3)
    assert match_segments(find_segments(predicted), find_segments(truth), min_iou=0.25) == (1, 2, 0)
    assert match_segments(find_segments(predicted), find_segments(truth), min_iou=0.61) == (0, 3, 1)


def test_one_frame_segments_count_as_much_as_long_ones():
    truth, predicted = np.repeat([0, 1, 0], [50, 1, 49]), np.zeros(100, np.int64)
    result = segmentation_scores([predicted], [truth])
    assert result["accuracy"] == 99
    assert result["edit"] == pytest.approx(100 / 3)
    assert result["f1@50"] == pytest.approx(100 * 2 * 1 / (1 + 3))


def test_segments_of_one_label_that_do_not_meet_are_no_hit():
    separate = [ActionSegment(1, 0, 3)], [ActionSegment(1, 5, 9)]
    assert match_segments(*separate, min_iou=0.1) == (0, 1, 1)
    assert match_segments([], separate[1], min_iou=0.1) == (0, 0, 1)
    assert match_segments(separate[0], [], min_iou=0.1) == (0, 1, 0)


def test_videos_of_background_alone_have_a_whole_edit_and_no_f1():
    result = segmentation_scores([np.zeros(4, np.int64)], [np.zeros(4, np.int64)], background=[0])
    assert result == {"edit": 100.0, "accuracy": 100.0, "f1@10": 0.0, "f1@25": 0.0, "f1@50": 0.0}


def test_edit_is_a_mean_over_videos_and_accuracy_over_frames():
    truth = [np.array([0, 1]), np.zeros(8, np.int64)]
    predicted = [np.array([0, 0]), np.zeros(8, np.int64)]
    result = segmentation_scores(predicted, truth)
    assert result["edit"] == pytest.approx(75)
    assert result["accuracy"] == pytest.approx(90)
