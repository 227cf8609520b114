"""Plots of a sweep: accuracy at every point, and accuracy against time."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stillmotion.report.plot_style import GRAY, PALETTE, TEXT_COLOR, escape_mathtext, new_axes

Series = Mapping[str, Sequence[Sequence[float]]]  # by target: for each point, a value for each seed

_MAX_SHORT_NAME = 12  # letters; longer names are rotated
_LOG_SCALE_RATIO = 20  # largest over smallest value of a logarithmic axis


def plot_sweep(
    points: Sequence[str],
    targets: Series,
    *,
    untrained: Mapping[str, float],
    axis_name: str = "",
    metric_name: str = "probe accuracy",
    baseline_name: str = "untrained",
) -> Figure:
    """Plot the mean of each target at each point, with its standard deviation over seeds.

    Args:
        points: Names of the points; numbers give a numeric axis.
        targets: Values by target, point and seed.
        untrained: Accuracy of each target before training, drawn as dashed lines.
        axis_name: Label of the x axis.
        metric_name: Label of the y axis.
        baseline_name: Label of the dashed lines.
    """
    figure, axes = new_axes(width=max(5.2, 1.0 * len(points) + 1.6), height=3.4)
    positions, is_numeric = _point_positions(points)
    if is_numeric and min(positions) > 0 and max(positions) > _LOG_SCALE_RATIO * min(positions):
        axes.set_xscale("log")
    for i, (target, rows) in enumerate(targets.items()):
        color, name = PALETTE[i % len(PALETTE)], escape_mathtext(target)
        table = np.array(rows)
        mean = table.mean(1)
        std = table.std(1, ddof=1) if table.shape[1] > 1 else np.zeros(len(mean))
        if is_numeric:
            order = np.argsort(positions)
            x = np.array(positions)[order]
            axes.plot(x, mean[order], "o-", color=color, markersize=4, linewidth=1.5, label=name)
            axes.fill_between(x, (mean - std)[order], (mean + std)[order], color=color, alpha=0.15, linewidth=0)
        else:
            x = np.array(positions) + (i - (len(targets) - 1) / 2) * 0.12
            axes.errorbar(x, mean, std, fmt="o", color=color, markersize=5, capsize=2, linewidth=1.2, label=name)
        if target in untrained:
            axes.axhline(untrained[target], color=color, linestyle="--", linewidth=0.9, alpha=0.8)
    axes.axhline(np.nan, color=GRAY, linestyle="--", linewidth=0.9, label=baseline_name)
    _label_points(axes, points, positions, is_numeric, axis_name)
    axes.set_ylabel(metric_name)
    axes.legend(
        frameon=False,
        fontsize=8,
        labelcolor=TEXT_COLOR,
        ncols=6 if len(targets) < 5 else 3,
        loc="lower left",
        bbox_to_anchor=(0, 1),
    )
    return figure


def plot_accuracy_vs_time(
    points: Sequence[str], accuracy: Sequence[Sequence[float]], seconds: Sequence[float]
) -> Figure:
    """Plot the mean accuracy of each point against the time of its training step (BOD-VCL, Figure 10).

    Args:
        points: Names of the points.
        accuracy: Accuracy by point and seed.
        seconds: Seconds of a step by point.
    """
    figure, axes = new_axes(width=5.2, height=3.2)
    for i, (point, row, time) in enumerate(zip(points, accuracy, seconds, strict=True)):
        std = float(np.std(row, ddof=1)) if len(row) > 1 else 0.0
        axes.errorbar(
            time, np.mean(row), std, fmt="o", color=PALETTE[i % len(PALETTE)], capsize=2, label=escape_mathtext(point)
        )
    axes.set_xlim(left=0)
    axes.set_xlabel("CPU seconds per step")
    axes.set_ylabel("average probe accuracy")
    axes.legend(frameon=False, fontsize=8, labelcolor=TEXT_COLOR, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def _point_positions(points: Sequence[str]) -> tuple[list[float], bool]:
    """Return the positions of the points, and whether they are their values."""
    try:
        return [float(p) for p in points], len(points) > 1
    except ValueError:
        return [float(i) for i in range(len(points))], False


def _label_points(
    axes: Axes, points: Sequence[str], positions: Sequence[float], is_numeric: bool, axis_name: str
) -> None:
    axes.set_xlabel(escape_mathtext(axis_name))
    axes.set_xticks(positions, [escape_mathtext(point) for point in points], fontsize=8)
    axes.set_xticks([], minor=True)
    if not is_numeric:
        axes.set_xlim(-0.6, len(points) - 0.4)
        if max(len(p) for p in points) > _MAX_SHORT_NAME:
            for label in axes.get_xticklabels():
                label.set(rotation=20, ha="right")
