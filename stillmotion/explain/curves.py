"""The course of training: every loss part of one or several runs, and what was found between the epochs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from stillmotion.explain.figure import colours, legend, new_axes, plain
from stillmotion.train.log import read_metrics

_LOSS = "loss/"
_HEALTH = "health/"
_FOUND = {"knn": "nearest neighbour", "probe": "linear probe"}
_PARTS = ("static", "dynamic", "whole", "motion")  # in the order of their colours, as health has them


def loss_curves(runs: Mapping[str, str | Path]) -> dict[str, Figure]:
    """A figure for each loss part that any of the runs has, with a line for each run that has it.

    runs: folders by the name that the legend gives them. A run without metrics has no line.
    """
    curves = {name: read_metrics(folder) for name, folder in runs.items()}
    parts = dict.fromkeys(key for found in curves.values() for key in found if key.startswith(_LOSS))
    return {part.removeprefix(_LOSS): _drawn(curves, part, part.removeprefix(_LOSS)) for part in parts}


def health_curves(run: str | Path) -> dict[str, Figure]:
    """A figure for each number that `train.health` logged, with a line for each component that has it."""
    found = read_metrics(run)
    measures: dict[str, dict[str, str]] = {}  # by title: the keys of the components
    for key in found:
        if key.startswith(_HEALTH):
            component, _, measure = key.removeprefix(_HEALTH).partition("/")
            measures.setdefault(measure or component, {})[component] = key
    return {
        title: _drawn({component: {title: found[key]} for component, key in keys.items()}, title, title)
        for title, keys in measures.items()
    }


def evaluation_curves(run: str | Path) -> dict[str, Figure]:
    """A figure over the epochs for each measure of an evaluation in between and each label, with a line by part."""
    found = read_metrics(run)
    titles: dict[str, dict[str, str]] = {}  # by title: the keys of the parts
    for measure, words in _FOUND.items():
        for key in found:
            front, _, rest = key.partition("/")
            if front == measure:
                part, _, target = rest.partition("/")
                titles.setdefault(f"{words}: {target}" if target else words, {})[part] = key
    titles = {title: {part: keys[part] for part in _PARTS if part in keys} for title, keys in titles.items()}
    step, epoch = found["epoch"][-1] if "epoch" in found else (1, 1.0)
    return {
        title: _drawn({part: {title: found[key]} for part, key in keys.items()}, title, title, per_epoch=step / epoch)
        for title, keys in titles.items()
    }


def metric_curve(runs: Mapping[str, str | Path], metric: str, *, title: str) -> Figure | None:
    """A figure of one logged number, with a line for each run that has it; None where none has."""
    curves = {name: read_metrics(folder) for name, folder in runs.items()}
    return _drawn(curves, metric, title) if any(metric in found for found in curves.values()) else None


def _drawn(
    curves: Mapping[str, Mapping[str, list[tuple[int, float]]]], key: str, title: str, *, per_epoch: float = 0.0
) -> Figure:
    """per_epoch: steps; where given, the course is drawn over epochs, of which each has one number at most."""
    colour = colours(list(curves))
    figure, axes = new_axes(title=title)
    for name, found in curves.items():
        if key not in found:
            continue
        steps, values = np.array(found[key]).T
        if per_epoch:
            axes.plot(steps / per_epoch, values, ".-", color=colour[name], linewidth=1.4, label=plain(name))
            continue
        axes.plot(steps, values, color=colour[name], alpha=0.3, linewidth=0.8)
        axes.plot(steps, smooth(values), color=colour[name], linewidth=1.6, label=plain(name))
    axes.set_xlabel("epoch" if per_epoch else "step")
    axes.yaxis.set_major_formatter(lambda value, place: f"{value:.4g}")
    if len(curves) > 1:
        legend(axes)
    return figure


def smooth(values: np.ndarray) -> np.ndarray:
    """A centred running mean over a twentieth of the course; shorter windows at both ends."""
    half = len(values) // 40
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    start, stop = np.maximum(places - half, 0), np.minimum(places + half + 1, len(values))
    return (sums[stop] - sums[start]) / (stop - start)
