import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stillmotion.studies.statistics import judge_difference, mean_std, significance_margin


def test_spread_is_the_mean_and_the_sample_standard_deviation():
    assert mean_std(np.array([0.2, 0.4, 0.9])) == pytest.approx((0.5, np.sqrt((0.09 + 0.01 + 0.16) / 2)))
    assert mean_std(np.array([0.7])) == (0.7, 0.0)


def test_with_two_points_the_margin_is_that_of_the_paired_t_test():
    rng = np.random.default_rng(0)
    for seeds in (2, 3, 6):
        a, b = rng.normal(size=(2, seeds))
        interval = stats.ttest_rel(a, b).confidence_interval(0.95)
        assert significance_margin(np.stack([a, b])) == pytest.approx((interval.high - interval.low) / 2)


def test_the_margin_of_several_points_is_a_least_squares_fit_of_points_and_seeds():
    points, seeds = 4, 3
    table = np.random.default_rng(1).normal(size=(points, seeds))
    design = np.array(
        [[p == i for i in range(points)] + [s == j for j in range(1, seeds)] for p, s in np.ndindex(4, 3)]
    )
    residual_sum = np.linalg.lstsq(design.astype(float), table.ravel(), rcond=None)[1].item()
    freedom = points * seeds - np.linalg.matrix_rank(design)
    expected = stats.t.ppf(0.975, freedom) * np.sqrt(residual_sum / freedom * 2 / seeds)
    assert significance_margin(table) == pytest.approx(expected)


@given(st.integers(2, 5), st.integers(2, 5), st.integers(0, 99))
def test_what_all_points_of_a_seed_share_is_no_noise(points, seeds, seed):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(points, seeds))
    assert significance_margin(table + 5 * rng.normal(size=(1, seeds))) == pytest.approx(significance_margin(table))


def test_one_seed_or_one_point_has_no_margin():
    assert significance_margin(np.array([[0.1], [0.9]])) is None
    assert significance_margin(np.array([[0.1, 0.9]])) is None
    assert judge_difference(0.8, None) == "one seed"


@pytest.mark.parametrize(
    ("difference", "is_significant", "text"),
    [
        (0.2, False, "agrees"),
        (-0.2, False, "differs"),
        (0.05, False, "within noise"),
        (-0.05, False, "within noise"),
        (-0.05, True, "agrees"),
        (0.2, True, "differs"),
        (-0.2, True, "differs"),
    ],
)
def test_a_difference_counts_beyond_the_margin_only(difference, is_significant, text):
    assert judge_difference(difference, 0.1, expect_equal=is_significant) == text
