"""Which classes are taken for which."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from stillmotion.explain.figure import INK, PALETTE, new_axes, plain

_WRITTEN = 12  # with more classes, numbers in cells are too small to read
_NAMED = 60


def confusion_plot(counts: np.ndarray, classes: Sequence[str]) -> Figure:
    """A square for each pair of classes, as dark as the share of the row's videos that were taken for the column's.

    counts: (C, C); a row is the videos' class, a column what they were taken for.
    """
    number = len(classes)
    side = float(np.clip(1.6 + 0.42 * number, 3.2, 9.0))
    figure, axes = new_axes(width=side + 0.8, height=side)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.grid(visible=False)
    axes.imshow(np.dstack([np.broadcast_to(to_rgb(PALETTE[1]), (number, number, 3)), shares]), interpolation="nearest")
    if number <= _WRITTEN:
        for row, column in zip(*np.nonzero(counts), strict=True):
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=INK)
    axes.set(xlabel="taken for", ylabel="class")
    small = max(3.0, min(8.0, 150 / number))
    if number <= _NAMED:
        names = [plain(name) for name in classes]
        axes.set_xticks(range(number), names, rotation=90, fontsize=small)
        axes.set_yticks(range(number), names, fontsize=small)
    return figure
