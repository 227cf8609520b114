"""Plots of the confounding study: videos, gradient norms and accuracies (BOD-VCL, Figures 5 to 7).

Shapes: R seeds, K points along training.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stillmotion.data.synthetic.factors import FACTORS, SyntheticConfig, SyntheticVideo
from stillmotion.report.charts import running_mean
from stillmotion.report.plot_style import GRAY, PALETTE, TEXT_COLOR, add_legend, new_axes

FACTOR_TYPES = {"color": "simple static", "shape": "complex static", "brightness": "simple dynamic"} | {
    "trajectory": "complex dynamic"
}
_STREAM_LABELS = {"static": "‖∇θ_A‖ static stream", "dynamic": "‖∇θ_M‖ dynamic stream"}


def plot_factor_examples(
    config: SyntheticConfig, classes: Mapping[str, Sequence[str]], *, num_frames: int = 6
) -> Figure:
    """Plot every value of every factor as a strip of frames, with the other factors fixed (Figure 5).

    Args:
        config: Config of the videos.
        classes: Names of the values by factor.
        num_frames: Frames per strip.
    """
    rows = max(len(names) for names in classes.values())
    figure = Figure(figsize=(11, 0.62 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, len(FACTORS), squeeze=False)
    # From a third on: the ends of a brightness trend are too dark.
    times = (config.num_frames // 3 + 2 * np.arange(num_frames)).tolist()
    for column, factor in zip(grid.T, FACTORS, strict=True):
        for value, axes in enumerate(column):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            if value >= len(classes[factor]):
                continue
            values = {f: names[0] for f, names in classes.items()} | {factor: classes[factor][value]}
            strip = SyntheticVideo(config, values, np.random.default_rng(5)).get_frames(times)
            axes.imshow(np.concatenate(list(strip), axis=1), interpolation="nearest")
            axes.set_ylabel(classes[factor][value], rotation=0, ha="right", va="center", fontsize=8, color=TEXT_COLOR)
        column[0].set_title(f"{factor} ({FACTOR_TYPES[factor]})", fontsize=9, color=TEXT_COLOR)
    figure.set_dpi(144)
    return figure


def plot_gradient_norms(norms: Mapping[str, np.ndarray], *, title: str = "") -> Figure:
    """Plot the gradient norm of each stream along training: smoothed mean over seeds, and their range as a band.

    Args:
        norms: Gradient norms (R, K) by stream.
        title: Title.
    """
    figure, axes = new_axes(width=3.9, height=2.9, title=title)
    for (stream, table), color in zip(norms.items(), PALETTE, strict=False):
        lines = np.stack([running_mean(line) for line in np.asarray(table, float)])
        _plot_band(axes, np.arange(1, lines.shape[1] + 1), lines, _STREAM_LABELS[stream], color)
    axes.set(xlabel="step", ylabel="gradient norm", ylim=(0, None))
    add_legend(axes)
    return figure


def plot_accuracy(
    steps: Sequence[int], accuracies: Mapping[str, np.ndarray], *, highlighted: Sequence[str] = (), title: str = ""
) -> Figure:
    """Plot the accuracy of each factor along training: mean over seeds, and their range as a band.

    Args:
        steps: Steps (K,).
        accuracies: Accuracies (R, K) by factor.
        highlighted: Confounded pair; the other factors are drawn thin.
        title: Title.
    """
    figure, axes = new_axes(width=3.9, height=2.9, title=title)
    for (factor, table), color in zip(accuracies.items(), PALETTE, strict=False):
        strong = not highlighted or factor in highlighted
        _plot_band(axes, np.asarray(steps), np.asarray(table, float), factor, color, strong=strong)
    axes.set(xlabel="step", ylabel="probe accuracy", ylim=(0, 1.04))
    add_legend(axes)
    return figure


def _plot_band(axes: Axes, x: np.ndarray, lines: np.ndarray, name: str, color: str, *, strong: bool = True) -> None:
    axes.fill_between(x, lines.min(0), lines.max(0), color=color, alpha=0.2, linewidth=0)
    axes.plot(x, lines.mean(0), color=color, linewidth=1.8 if strong else 1.0, ls="-" if strong else "--", label=name)
    axes.spines[["left", "bottom"]].set_color(GRAY)
