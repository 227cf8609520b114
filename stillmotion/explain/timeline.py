"""Actions along time: what was predicted above what is true, one bar for each video."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from stillmotion.explain.figure import INK, PALETTE, new_axes, plain
from stillmotion.functional.segments import segments

_ROW, _GAP = 0.42, 0.3  # heights of a bar, and of the space between two videos
_COLUMNS = 4


def timelines(
    predicted: Mapping[str, np.ndarray], truth: Mapping[str, np.ndarray], actions: Sequence[str], *, most: int = 8
) -> Figure:
    """A figure of up to `most` videos, evenly chosen, each with the labels (T,) predicted and true.

    Time is a video's own: bars are of one length. The legend names the actions that are seen.
    """
    names = list(truth)
    names = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, most).round().astype(int))]
    seen = sorted({int(label) for name in names for labels in (predicted[name], truth[name]) for label in labels})
    colour = dict(zip(seen, _colours(len(seen)), strict=True))
    step = 2 * _ROW + _GAP
    rows = -(-len(seen) // _COLUMNS)
    figure, axes = new_axes(width=8.4, height=0.5 * len(names) + 0.24 * rows + 0.7)
    for place, name in enumerate(names):
        for labels, top in ((predicted[name], place * step), (truth[name], place * step + _ROW)):
            for segment in segments(labels):
                start, length = segment.start / len(labels), (segment.stop - segment.start) / len(labels)
                axes.broken_barh([(start, length)], (top, 0.9 * _ROW), color=colour[segment.label], linewidth=0)
    axes.set_yticks([place * step + 0.95 * _ROW for place in range(len(names))], [plain(n) for n in names])
    axes.set_ylim(len(names) * step - _GAP, -0.05)
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of the video; above what was predicted, below what is true")
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    figure.legend(
        handles=[Patch(color=colour[label], label=plain(actions[label])) for label in seen],
        loc="outside lower center",
        ncols=_COLUMNS,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
    )
    return figure


def _colours(count: int) -> Sequence[str]:
    """The palette of all figures, or as many hues as there are actions."""
    if count <= len(PALETTE):
        return PALETTE[:count]
    hues = matplotlib.colormaps["turbo"](np.linspace(0.03, 0.97, count))
    return [matplotlib.colors.to_hex(hue) for hue in hues]
