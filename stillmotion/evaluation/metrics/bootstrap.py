"""How far a mean over videos could lie elsewhere had other videos been drawn: the bootstrap.

Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7 (1979). Intervals are percentiles of
the means of resampled videos. Shapes: M quantities of N videos, R resamples.
"""

from typing import NamedTuple

import numpy as np

from stillmotion.errors import StillmotionError

_MAX_DRAWS_IN_MEMORY = 4_000_000  # drawn numbers held in memory


class ConfidenceInterval(NamedTuple):
    """Where the mean of resampled videos lies with the level's probability."""

    low: float
    high: float


def bootstrap_means(values: np.ndarray, *, n_resamples: int = 2000, seed: int = 0) -> np.ndarray:
    """The means (M, R) of values (M, N) over videos that are drawn N at a time with replacement.

    All M quantities see the same draws, so that differences between rows are paired. The same seed and N draw the
    same videos.
    """
    values = np.atleast_2d(np.asarray(values, np.float64))
    n = values.shape[1]
    if n == 0 or n_resamples < 1:
        raise StillmotionError(f"{n} videos and {n_resamples} resamples; a bootstrap needs at least one of each")
    rng = np.random.default_rng(seed)
    means = np.empty((len(values), n_resamples))
    step = max(1, _MAX_DRAWS_IN_MEMORY // n)
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        drawn = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        means[:, start : start + rows] = values @ counts.T / n
    return means


def bootstrap_interval(
    values: np.ndarray, *, confidence_level: float = 0.95, n_resamples: int = 2000, seed: int = 0
) -> ConfidenceInterval:
    """The bootstrap interval of the mean of values (N,)."""
    if not 0 < confidence_level < 1:
        raise StillmotionError(f"level is {confidence_level}; a confidence lies between 0 and 1, such as 0.95")
    means = bootstrap_means(values, n_resamples=n_resamples, seed=seed)[0]
    low, high = np.quantile(means, [(1 - confidence_level) / 2, (1 + confidence_level) / 2])
    return ConfidenceInterval(float(low), float(high))
