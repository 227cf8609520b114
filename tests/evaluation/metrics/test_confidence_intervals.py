import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.metrics import confidence_intervals
from stillmotion.evaluation.metrics.confidence_intervals import bootstrap_interval, bootstrap_means, wilson_interval


@given(hits=st.integers(1, 39), seed=st.integers(0, 5))
def test_the_interval_of_an_accuracy_is_the_binomial_one(hits, seed):
    # The number of hits among resampled videos is binomial, with quantiles in closed form.
    is_hit = np.arange(40) < hits
    low, high = bootstrap_interval(is_hit, n_resamples=5000, seed=seed)
    expected = binom(40, hits / 40)
    assert abs(low - expected.ppf(0.025) / 40) < 1.5 / 40
    assert abs(high - expected.ppf(0.975) / 40) < 1.5 / 40
    assert low < hits / 40 < high


def test_means_are_those_of_videos_drawn_one_by_one(monkeypatch):
    values = np.random.default_rng(1).normal(size=(3, 7))
    rng = np.random.default_rng(5)
    expected = [values[:, rng.integers(7, size=7)].mean(1) for _ in range(50)]
    np.testing.assert_allclose(bootstrap_means(values, n_resamples=50, seed=5), np.transpose(expected))
    monkeypatch.setattr(confidence_intervals, "_MAX_INDICES_IN_MEMORY", 30)  # in blocks of four resamples
    np.testing.assert_allclose(bootstrap_means(values, n_resamples=50, seed=5), np.transpose(expected))


def test_rows_share_their_draws():
    values = np.random.default_rng(2).normal(size=30)
    first, second, gap = bootstrap_means(np.stack([values, values + 2, np.full(30, 2.0)]), n_resamples=100)
    np.testing.assert_allclose(second - first, gap)


def test_a_higher_level_gives_a_wider_interval():
    is_hit = np.arange(50) % 3 == 0
    narrow, wide = bootstrap_interval(is_hit, confidence_level=0.5), bootstrap_interval(is_hit, confidence_level=0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_what_cannot_be_resampled_is_an_error():
    with pytest.raises(StillmotionError, match="at least 1 video and 1 resample, got 0 and 2000"):
        bootstrap_interval(np.array([]))
    with pytest.raises(StillmotionError, match=r"such as 0\.95; got 95"):
        bootstrap_interval(np.ones(3), confidence_level=95)


@pytest.mark.parametrize(("num_correct", "num_trials"), [(0, 6), (6, 6), (1, 6), (13, 40)])
def test_the_interval_of_a_proportion_is_wilsons(num_correct, num_trials):
    for level in (0.9, 0.95):
        expected = binomtest(num_correct, num_trials).proportion_ci(level, method="wilson")
        assert wilson_interval(num_correct, num_trials, confidence_level=level) == pytest.approx(
            (expected.low, expected.high), abs=1e-9
        )
    assert wilson_interval(num_correct, num_trials).high > wilson_interval(num_correct, num_trials).low
