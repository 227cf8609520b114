"""What a table of runs says: means, spreads, and which differences the seeds alone could have made.

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
    """Of one point's values (S,)."""
    return MeanStd(float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0)


def format_mean_range(values: Sequence[float]) -> str:
    """The mean, and behind it the range where there are several."""
    between = f" ({min(values):.2f}–{max(values):.2f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{between}"


def significance_margin(values: np.ndarray) -> float | None:
    """How far the means of two rows of (P, S) must lie apart to differ at 95 %; None where nothing can be said.

    Runs of one seed share their first weights and their videos, so seeds are blocks: what is left of the table
    without the means of its rows and columns is noise, and its variance, pooled over all points, makes the
    standard error of a difference. The margin is that error times Student's quantile.
    """
    points, seeds = values.shape
    freedom = (points - 1) * (seeds - 1)
    if freedom < 1:
        return None
    rest = values - values.mean(1, keepdims=True) - values.mean(0, keepdims=True) + values.mean()
    variance = float((rest**2).sum()) / freedom
    return float(stdtrit(freedom, _CONFIDENCE_QUANTILE)) * float(np.sqrt(2 * variance / seeds))


def judge_difference(difference: float, margin: float | None, *, expect_equal: bool = False) -> Verdict:
    """Whether a difference agrees with a claim that it is positive, or that there is none (`expect_equal`)."""
    if margin is None:
        return "one seed"
    if expect_equal:
        return "agrees" if abs(difference) <= margin else "differs"
    if abs(difference) <= margin:
        return "within noise"
    return "agrees" if difference > 0 else "differs"
