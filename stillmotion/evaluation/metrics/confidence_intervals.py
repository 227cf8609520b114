"""Confidence intervals: bootstrap intervals of means over videos, and Wilson intervals of proportions.

Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7 (1979); Wilson, "Probable Inference,
the Law of Succession, and Statistical Inference", Journal of the American Statistical Association 22 (1927).

Shapes: M quantities of N videos, R resamples.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from stillmotion.errors import StillmotionError

_MAX_INDICES_IN_MEMORY = 4_000_000


class ConfidenceInterval(NamedTuple):
    """Lower and upper bound."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A value and its confidence interval."""

    value: float
    low: float
    high: float

    def format(self, *, digits: int = 3, sign: str = "", scale: float = 1.0) -> str:
        """Return the value with its interval in brackets.

        Args:
            digits: Digits after the point.
            sign: "+" shows the sign of positive numbers too.
            scale: Factor of all three numbers, such as 100 for percent.

        Returns:
            Text such as "0.512 [0.430, 0.594]".
        """
        value, low, high = (f"{scale * x:{sign}.{digits}f}" for x in (self.value, self.low, self.high))
        return f"{value} [{low}, {high}]"


def bootstrap_means(values: np.ndarray, *, n_resamples: int = 2000, seed: int = 0) -> np.ndarray:
    """Compute the means over resampled videos.

    All M quantities use the same resamples, so that differences between rows are paired. The same seed and N give the
    same resamples.

    Args:
        values: Value of each quantity for each video, (M, N) or (N,).
        n_resamples: Number of resamples (R), each of N videos with replacement.
        seed: Seed of the resampling.

    Returns:
        Means, (M, R).

    Raises:
        StillmotionError: If there are no videos or no resamples.
    """
    values = np.atleast_2d(np.asarray(values, np.float64))
    n = values.shape[1]
    if n == 0 or n_resamples < 1:
        raise StillmotionError(f"A bootstrap needs at least 1 video and 1 resample, got {n} and {n_resamples}.")
    rng = np.random.default_rng(seed)
    means = np.empty((len(values), n_resamples))
    step = max(1, _MAX_INDICES_IN_MEMORY // n)
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        indices = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(indices.ravel(), minlength=rows * n).reshape(rows, n)
        means[:, start : start + rows] = values @ counts.T / n
    return means


def bootstrap_interval(
    values: np.ndarray, *, confidence_level: float = 0.95, n_resamples: int = 2000, seed: int = 0
) -> ConfidenceInterval:
    """Compute the percentile bootstrap interval of a mean.

    Args:
        values: Value of each video, (N,).
        confidence_level: Confidence level, between 0 and 1.
        n_resamples: Number of resamples.
        seed: Seed of the resampling.

    Returns:
        The interval.

    Raises:
        StillmotionError: If the level is not between 0 and 1.
    """
    check_confidence_level(confidence_level)
    return percentile_interval(
        bootstrap_means(values, n_resamples=n_resamples, seed=seed)[0], confidence_level=confidence_level
    )


def percentile_interval(resampled: np.ndarray, *, confidence_level: float = 0.95) -> ConfidenceInterval:
    """Return the central percentiles of resampled values.

    Args:
        resampled: Value under each resample, (R,).
        confidence_level: Fraction of the values between the bounds.

    Returns:
        The interval.
    """
    low, high = np.quantile(resampled, [(1 - confidence_level) / 2, (1 + confidence_level) / 2])
    return ConfidenceInterval(float(low), float(high))


def interval_around(value: float, resampled: np.ndarray, *, confidence_level: float = 0.95) -> Estimate:
    """Return an interval as wide as the resampled values spread, placed around the value.

    Statistics such as a largest radius or a rank are smaller in a resample, which has fewer distinct videos: their
    percentiles would lie beside the value.

    Args:
        value: Value on all videos.
        resampled: Value under each resample, (R,).
        confidence_level: Fraction of the values between the bounds.

    Returns:
        The value and its interval.
    """
    low, high = percentile_interval(resampled - resampled.mean(), confidence_level=confidence_level)
    return Estimate(float(value), float(value + low), float(value + high))


def wilson_interval(num_correct: int, num_trials: int, *, confidence_level: float = 0.95) -> ConfidenceInterval:
    """Compute the Wilson score interval of a proportion, which has a width even for 0 or all of n.

    Args:
        num_correct: Number of successes.
        num_trials: Number of trials.
        confidence_level: Confidence level, between 0 and 1.

    Returns:
        The interval, within 0 and 1.

    Raises:
        StillmotionError: If there are no trials, or the level is not between 0 and 1.
    """
    check_confidence_level(confidence_level)
    if num_trials < 1:
        raise StillmotionError("A proportion needs at least 1 video, got 0.")
    z = NormalDist().inv_cdf((1 + confidence_level) / 2)
    p, scale = num_correct / num_trials, 1 + z**2 / num_trials
    center = (p + z**2 / (2 * num_trials)) / scale
    margin = z / scale * np.sqrt(p * (1 - p) / num_trials + z**2 / (4 * num_trials**2))
    low = 0.0 if num_correct == 0 else float(center - margin)
    high = 1.0 if num_correct == num_trials else float(center + margin)
    return ConfidenceInterval(low, high)


def check_confidence_level(confidence_level: float) -> None:
    """Raise StillmotionError if a confidence level is not between 0 and 1."""
    if not 0 < confidence_level < 1:
        raise StillmotionError(f"The confidence level must be between 0 and 1, such as 0.95; got {confidence_level}.")
