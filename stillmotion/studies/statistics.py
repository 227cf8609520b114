"""Statistics over seeds: mean, standard deviation, and significance of differences.

Shapes: P points, S seeds.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

_CONFIDENCE_QUANTILE = 0.975  # of each side of a two-sided test at 95 %

Verdict = Literal["agrees", "differs", "within noise", "one seed"]


class MeanStd(NamedTuple):
    """Mean and sample standard deviation over seeds; of one seed the latter is 0."""

    mean: float
    std: float


def mean_std(values: np.ndarray) -> MeanStd:
    """Return mean and standard deviation of one point's values (S,)."""
    return MeanStd(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0)


def format_mean_range(values: Sequence[float]) -> str:
    """Format the mean, followed by the range of several values."""
    value_range = f" ({min(values):.2f}–{max(values):.2f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{value_range}"


def significance_margin(values: np.ndarray) -> float | None:
    """Return the smallest difference of two points' means that is significant at 95 %.

    Runs of one seed share their initial weights and their videos, so seeds are blocks: the residuals of the table
    without the means of its rows and columns are noise, whose variance, pooled over all points, gives the standard
    error of a difference. The margin is that error times Student's quantile.

    Args:
        values: Values (P, S).

    Returns:
        The margin; None with one point or one seed.
    """
    num_points, num_seeds = values.shape
    degrees_of_freedom = (num_points - 1) * (num_seeds - 1)
    if degrees_of_freedom < 1:
        return None
    residuals = values - values.mean(1, keepdims=True) - values.mean(0, keepdims=True) + values.mean()
    variance = float((residuals**2).sum()) / degrees_of_freedom
    return float(stdtrit(degrees_of_freedom, _CONFIDENCE_QUANTILE)) * float(np.sqrt(2 * variance / num_seeds))


def judge_difference(difference: float, margin: float | None, *, expect_equal: bool = False) -> Verdict:
    """Compare a difference with a claim about it.

    Args:
        difference: Measured difference.
        margin: Smallest significant difference; None if unknown.
        expect_equal: The claim is that there is no difference, instead of a positive one.
    """
    if margin is None:
        return "one seed"
    if expect_equal:
        return "agrees" if abs(difference) <= margin else "differs"
    if abs(difference) <= margin:
        return "within noise"
    return "agrees" if difference > 0 else "differs"
