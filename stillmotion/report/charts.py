"""Accuracy bars, and line plots of logged metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stillmotion.report.plot_style import (
    TEXT_COLOR,
    add_legend,
    add_legend_above,
    assign_colors,
    escape_mathtext,
    new_axes,
)

MIN_SMOOTHED_VALUES = 40  # with fewer values a running mean equals the values
Accuracies = Mapping[str, Sequence[Mapping[str, float]]]


def plot_accuracy_bars(methods: Accuracies, *, factors: Sequence[str], chance: Mapping[str, float]) -> Figure:
    """Plot mean accuracies as bars, with a dot for each seed, their range, and chance as a dashed line.

    Args:
        methods: By method, the accuracy of each factor for each seed.
        factors: Groups of bars.
        chance: Chance accuracy of each factor.
    """
    figure, axes = new_axes(width=max(4.2, 1.9 * len(factors)), height=3.2)
    draw_accuracy_bars(axes, methods, factors=factors, chance=chance)
    return figure


def draw_accuracy_bars(axes: Axes, methods: Accuracies, *, factors: Sequence[str], chance: Mapping[str, float]) -> None:
    """Draw the bars of `plot_accuracy_bars` on axes.

    Args:
        axes: The axes.
        methods: By method, the accuracy of each factor for each seed.
        factors: Groups of bars.
        chance: Chance accuracy of each factor.
    """
    color = assign_colors(list(methods))
    width = 0.8 / len(methods)
    for i, (name, seeds) in enumerate(methods.items()):
        x = np.arange(len(factors)) + (i - (len(methods) - 1) / 2) * width
        table = np.array([[seed[f] for f in factors] for seed in seeds])
        mean = table.mean(0)
        axes.bar(x, mean, width * 0.92, color=color[name], label=escape_mathtext(name))
        if len(seeds) > 1:
            low, high = table.min(0), table.max(0)
            axes.vlines(x, low, high, color=TEXT_COLOR, linewidth=6, alpha=0.25)
            axes.plot(np.tile(x, (len(seeds), 1)), table, ".", color=TEXT_COLOR, markersize=3)
        for bar, value, top in zip(x, mean, table.max(0), strict=True):
            axes.annotate(
                f"{value:.2f}",
                (bar, top),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=min(7, 30 / len(methods)),
                color=TEXT_COLOR,
            )
    for i, factor in enumerate(factors):
        label = "chance" if i == 0 else None
        axes.plot([i - 0.45, i + 0.45], [chance[factor]] * 2, "--", color=TEXT_COLOR, linewidth=1, label=label)
    axes.set_xticks(range(len(factors)), [escape_mathtext(factor) for factor in factors], fontsize=9)
    axes.set_ylim(0, 1.1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.set_ylabel("probe accuracy")
    add_legend_above(axes)


def plot_lines(
    curves: Mapping[str, Mapping[str, list[tuple[int, float]]]], key: str, title: str, *, steps_per_epoch: float = 0.0
) -> Figure:
    """Plot a logged metric of one or several runs.

    A run with many values is drawn as logged (thin) and as a running mean; a short one as points.

    Args:
        curves: By name in the legend, the metrics of a run: pairs of step and value by key.
        key: Metric to plot; runs without it have no line.
        title: Title of the figure.
        steps_per_epoch: If given, values are drawn over epochs, as points.
    """
    color = assign_colors(list(curves))
    figure, axes = new_axes(title=title)
    for name, metrics in curves.items():
        if key not in metrics:
            continue
        steps, values = np.array(metrics[key]).T
        style: dict[str, Any] = {"color": color[name], "label": escape_mathtext(name)}
        if steps_per_epoch or len(values) < MIN_SMOOTHED_VALUES:
            axes.plot(steps / (steps_per_epoch or 1), values, ".-", linewidth=1.4, **style)
        else:
            axes.plot(steps, values, color=color[name], alpha=0.3, linewidth=0.8)
            axes.plot(steps, running_mean(values), linewidth=1.6, **style)
    axes.set_xlabel("epoch" if steps_per_epoch else "step")
    if not steps_per_epoch:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    if len(curves) > 1:
        add_legend(axes)
    return figure


def running_mean(values: np.ndarray) -> np.ndarray:
    """Compute a centered running mean over a twentieth of the values (n,), with shorter windows at both ends."""
    half_window = len(values) // MIN_SMOOTHED_VALUES
    sums = np.concatenate([[0.0], np.cumsum(values)])
    positions = np.arange(len(values))
    start, stop = np.maximum(positions - half_window, 0), np.minimum(positions + half_window + 1, len(values))
    return (sums[stop] - sums[start]) / (stop - start)
