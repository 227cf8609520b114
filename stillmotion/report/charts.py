"""Accuracies side by side: a group of bars for each factor, a bar for each method."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stillmotion.report.plot_style import (
    TEXT_COLOR,
    add_legend,
    add_legend_above,
    assign_colors,
    escape_mathtext,
    new_axes,
)

Accuracies = Mapping[str, Sequence[Mapping[str, float]]]


def plot_accuracy_bars(methods: Accuracies, *, factors: Sequence[str], chance: Mapping[str, float]) -> Figure:
    """Bars of mean accuracy, with a mark for each seed, its range as a band, and chance as a dashed line.

    methods: by name, one mapping from factor to accuracy for each seed.
    """
    figure, axes = new_axes(width=max(4.2, 1.9 * len(factors)), height=3.2)
    draw_accuracy_bars(axes, methods, factors=factors, chance=chance)
    return figure


def draw_accuracy_bars(axes: Axes, methods: Accuracies, *, factors: Sequence[str], chance: Mapping[str, float]) -> None:
    """`accuracy_bars` on given axes."""
    colour = assign_colors(list(methods))
    thick = 0.8 / len(methods)
    for i, (name, seeds) in enumerate(methods.items()):
        places = np.arange(len(factors)) + (i - (len(methods) - 1) / 2) * thick
        table = np.array([[seed[f] for f in factors] for seed in seeds])
        mean = table.mean(0)
        axes.bar(places, mean, thick * 0.92, color=colour[name], label=escape_mathtext(name))
        if len(seeds) > 1:
            low, high = table.min(0), table.max(0)
            axes.vlines(places, low, high, color=TEXT_COLOR, linewidth=6, alpha=0.25)
            axes.plot(np.tile(places, (len(seeds), 1)), table, ".", color=TEXT_COLOR, markersize=3)
        for place, value, top in zip(places, mean, table.max(0), strict=True):
            axes.annotate(
                f"{value:.2f}",
                (place, top),
                (0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=7,
                color=TEXT_COLOR,
            )
    for place, factor in enumerate(factors):
        label = "chance" if place == 0 else None
        axes.plot([place - 0.45, place + 0.45], [chance[factor]] * 2, "--", color=TEXT_COLOR, linewidth=1, label=label)
    axes.set_xticks(range(len(factors)), [escape_mathtext(factor) for factor in factors], fontsize=9)
    axes.set_ylim(0, 1.1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.set_ylabel("probe accuracy")
    add_legend_above(axes)


def plot_lines(
    curves: Mapping[str, Mapping[str, list[tuple[int, float]]]], key: str, title: str, *, steps_per_epoch: float = 0.0
) -> Figure:
    """per_epoch: steps; where given, the course is drawn over epochs, of which each has one number at most."""
    colour = assign_colors(list(curves))
    figure, axes = new_axes(title=title)
    for name, found in curves.items():
        if key not in found:
            continue
        steps, values = np.array(found[key]).T
        if steps_per_epoch:
            axes.plot(
                steps / steps_per_epoch, values, ".-", color=colour[name], linewidth=1.4, label=escape_mathtext(name)
            )
            continue
        axes.plot(steps, values, color=colour[name], alpha=0.3, linewidth=0.8)
        axes.plot(steps, running_mean(values), color=colour[name], linewidth=1.6, label=escape_mathtext(name))
    axes.set_xlabel("epoch" if steps_per_epoch else "step")
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:.4g}")
    if len(curves) > 1:
        add_legend(axes)
    return figure


def running_mean(values: np.ndarray) -> np.ndarray:
    """A centred running mean over a twentieth of the course; shorter windows at both ends."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    start, stop = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return (sums[stop] - sums[start]) / (stop - start)
