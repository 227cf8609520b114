"""Accuracies side by side: a group of bars for each factor, a bar for each method."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from stillmotion.explain.figure import INK, colours, legend_above, new_axes, plain

Accuracies = Mapping[str, Sequence[Mapping[str, float]]]


def accuracy_bars(methods: Accuracies, *, factors: Sequence[str], chance: Mapping[str, float]) -> Figure:
    """Bars of mean accuracy, with a mark for each seed, its range as a band, and chance as a dashed line.

    methods: by name, one mapping from factor to accuracy for each seed.
    """
    figure, axes = new_axes(width=max(4.2, 1.9 * len(factors)), height=3.2)
    draw_bars(axes, methods, factors=factors, chance=chance)
    return figure


def draw_bars(axes: Axes, methods: Accuracies, *, factors: Sequence[str], chance: Mapping[str, float]) -> None:
    """`accuracy_bars` on given axes."""
    colour = colours(list(methods))
    thick = 0.8 / len(methods)
    for i, (name, seeds) in enumerate(methods.items()):
        places = np.arange(len(factors)) + (i - (len(methods) - 1) / 2) * thick
        table = np.array([[seed[f] for f in factors] for seed in seeds])
        mean = table.mean(0)
        axes.bar(places, mean, thick * 0.92, color=colour[name], label=plain(name))
        if len(seeds) > 1:
            low, high = table.min(0), table.max(0)
            axes.vlines(places, low, high, color=INK, linewidth=6, alpha=0.25)
            axes.plot(np.tile(places, (len(seeds), 1)), table, ".", color=INK, markersize=3)
        for place, value, top in zip(places, mean, table.max(0), strict=True):
            axes.annotate(
                f"{value:.2f}", (place, top), (0, 3), textcoords="offset points", ha="center", fontsize=7, color=INK
            )
    for place, factor in enumerate(factors):
        label = "chance" if place == 0 else None
        axes.plot([place - 0.45, place + 0.45], [chance[factor]] * 2, "--", color=INK, linewidth=1, label=label)
    axes.set_xticks(range(len(factors)), [plain(factor) for factor in factors], fontsize=9)
    axes.set_ylim(0, 1.1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.set_ylabel("probe accuracy")
    legend_above(axes)
