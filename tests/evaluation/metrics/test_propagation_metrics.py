"""J and F against an implementation that visits every pixel, written from the definition of the DAVIS tool."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stillmotion.errors import StillmotionError
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


def slow_j(result, truth):
    pixels = [(bool(a), bool(b)) for a, b in zip(result.ravel(), truth.ravel(), strict=True)]
    either = sum(a or b for a, b in pixels)
    return 1.0 if either == 0 else sum(a and b for a, b in pixels) / either


def slow_boundary(mask):
    """Boundary pixels: those that differ from their right, lower or lower right neighbour."""
    h, w = mask.shape
    pixels = set()
    for y in range(h):
        for x in range(w):
            if y == h - 1 and x == w - 1:
                continue
            neighbours = [(y, x + 1), (y + 1, x), (y + 1, x + 1)]
            if y == h - 1:
                neighbours = [(y, x + 1)]
            elif x == w - 1:
                neighbours = [(y + 1, x)]
            if any(bool(mask[neighbour]) != bool(mask[y, x]) for neighbour in neighbours):
                pixels.add((y, x))
    return pixels


def slow_f(result, truth, bound=0.008):
    radius = math.ceil(bound * math.sqrt(truth.shape[0] ** 2 + truth.shape[1] ** 2))
    edges = slow_boundary(result), slow_boundary(truth)

    def count_matches(points, reference):
        return sum(any((y - v) ** 2 + (x - u) ** 2 <= radius**2 for v, u in reference) for y, x in points)

    if not edges[0] and edges[1]:
        precision, recall = 1.0, 0.0
    elif edges[0] and not edges[1]:
        precision, recall = 0.0, 1.0
    elif not edges[0]:
        precision = recall = 1.0
    else:
        precision, recall = count_matches(*edges) / len(edges[0]), count_matches(*reversed(edges)) / len(edges[1])
    return 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall)


def square(top, left, size, shape=(24, 32)):
    mask = np.zeros(shape, bool)
    mask[top : top + size, left : left + size] = True
    return mask


EMPTY, FULL = np.zeros((24, 32), bool), np.ones((24, 32), bool)
LINE = np.eye(24, 32, dtype=bool)
CASES = {
    "the same": (square(4, 4, 8), square(4, 4, 8)),
    "shifted by one": (square(4, 4, 8), square(4, 5, 8)),
    "shifted by many": (square(4, 4, 8), square(10, 17, 8)),
    "apart": (square(0, 0, 3), square(20, 28, 3)),
    "both empty": (EMPTY, EMPTY),
    "nothing found": (EMPTY, square(4, 4, 8)),
    "nothing there": (square(4, 4, 8), EMPTY),
    "everything": (FULL, FULL),
    "everything for an object": (FULL, square(4, 4, 8)),
    "everything for nothing": (FULL, EMPTY),
    "at the edge": (square(16, 24, 8), square(15, 24, 9)),
    "the last corner": (square(23, 31, 1), square(22, 30, 2)),
    "a thin line": (LINE, np.roll(LINE, 1, 1)),
    "a thin line lost": (LINE, square(0, 0, 2)),
    "a hole": (square(4, 4, 12) & ~square(8, 8, 3), square(4, 4, 12)),
    "two parts": (square(2, 2, 4) | square(14, 20, 5), square(2, 2, 4)),
}


@pytest.mark.parametrize("case", CASES)
def test_j_and_f_are_those_of_the_definition(case):
    result, truth = CASES[case]
    assert region_similarity(result, truth) == pytest.approx(slow_j(result, truth))
    for bound in (0.008, 0.03, 0.1):
        assert boundary_f_measure(result, truth, tolerance=bound) == pytest.approx(slow_f(result, truth, bound))


@settings(max_examples=30, deadline=None)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(
        lambda shape: st.tuples(arrays(bool, shape), arrays(bool, shape), st.sampled_from([0.008, 0.2]))
    )
)
def test_j_and_f_are_those_of_the_definition_on_any_masks(masks):
    result, truth, bound = masks
    assert region_similarity(result, truth) == pytest.approx(slow_j(result, truth))
    assert boundary_f_measure(result, truth, tolerance=bound) == pytest.approx(slow_f(result, truth, bound))


def test_the_bound_grows_with_the_picture():
    # Of 480×854 the disk has ceil(7.84) = 8 pixels.
    truth = square(100, 100, 200, (480, 854))
    assert boundary_f_measure(square(108, 100, 200, (480, 854)), truth) == pytest.approx(1, abs=0.02)
    assert boundary_f_measure(square(109, 100, 200, (480, 854)), truth) < 0.8


def test_statistics_are_mean_recall_and_decay():
    values = np.array([1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.0])
    result = davis_statistics(values)
    assert result.mean == pytest.approx(values.mean())
    assert result.recall == 0.5
    # Quarters of eight frames end at frames 0, 2, 4, 5 and 7, which two quarters share.
    assert result.decay == pytest.approx(values[0:3].mean() - values[5:8].mean())


def test_mean_iou_is_over_the_classes_that_occur():
    truth = np.array([[0, 0, 1, 1], [0, 0, 2, 2]])
    result = np.array([[0, 0, 1, 0], [0, 0, 1, 1]])
    table = pixel_confusion_matrix(result, truth, 20)
    assert table[2, 1] == 2
    assert mean_iou([table]) == pytest.approx(np.mean([4 / 5, 1 / 4, 0]))
    with pytest.raises(StillmotionError, match="Class 2 occurs in a mask, but there are only 2"):
        pixel_confusion_matrix(result, truth, 2)
    with pytest.raises(StillmotionError, match="they must be equal"):
        pixel_confusion_matrix(result[:1], truth, 3)


def test_a_joint_is_right_within_a_share_of_the_persons_size():
    # A person of 30×40 pixels: size 0.6 · 50 = 30, so that 0.1 are 3 pixels.
    truth = np.array([[[0.0, 0], [30, 40], [10, 10]]] * 2)
    result = truth + np.array([[[3.0, 0], [0, 3.1], [0, 0]], [[0, 6], [np.nan, 0], [0, 7]]])
    distances = normalized_keypoint_distances(result, truth)
    assert distances[0] == pytest.approx([0.1, 3.1 / 30, 0])
    assert np.isnan(distances[1, 1])
    # In the second frame a joint is lost, and the box is that of the other two.
    assert distances[1, 0] == pytest.approx(6 / (0.6 * np.hypot(10, 10)))
    # Per joint: 1 of 2, 0 of 1, 1 of 2; then the mean.
    assert pck_per_joint([distances], 0.1) == pytest.approx((0.5 + 0 + 0.5) / 3)
    assert pck_per_joint([distances[:1], distances[1:]], 0.11) == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert np.isnan(pck_per_joint([np.full((2, 3), np.nan)], 0.1))


def test_masks_of_two_sizes_are_refused():
    with pytest.raises(StillmotionError, match="give two of one shape"):
        region_similarity(np.zeros((2, 3)), np.zeros((3, 2)))


def test_mean_iou_over_videos_is_the_papers_equation():
    rng = np.random.default_rng(0)
    # Class 3 is in one of the two only.
    videos = [(rng.integers(0, c, (6, 5)), rng.integers(0, c, (6, 5))) for c in (2, 4, 3)]
    values = []
    for j in range(4):
        shares = []
        for result, truth in videos:
            either = ((result == j) | (truth == j)).sum()
            if either:
                shares.append(((result == j) & (truth == j)).sum() / either)
        values.append(sum(shares) / len(shares))
    tables = [pixel_confusion_matrix(result, truth, 6) for result, truth in videos]
    assert mean_iou(tables) == pytest.approx(sum(values) / 4)
    assert mean_iou(tables) != pytest.approx(mean_iou([np.sum(tables, axis=0)]))


def test_pck_over_videos_counts_every_video_once():
    short, long = np.array([[0.05, 0.3]]), np.array([[0.05, 0.15], [0.05, np.nan], [0.3, 0.05]])
    assert pck_per_video([short, long], 0.1) == pytest.approx((1 / 2 + 3 / 5) / 2)
    assert pck_per_video([short, long], 0.2) == pytest.approx((1 / 2 + 4 / 5) / 2)
    assert pck_per_joint([short, long], 0.1) == pytest.approx((3 / 4 + 1 / 3) / 2)
