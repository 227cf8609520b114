"""The course of training: every loss part of one or several runs, and what was found between the epochs."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from stillmotion.report.blocks import Block, Section, Table, Text, figure_block
from stillmotion.report.charts import plot_lines
from stillmotion.training.run_dir import load_any_config
from stillmotion.training.run_log import RunStatus, load_metrics, load_run_status
from stillmotion.utils.formatting import format_clock

_LOSS_PREFIX = "loss/"
_HEALTH_PREFIX = "health/"
_EVALUATION_TITLES = {"online_knn": "nearest neighbour", "online_probe": "linear probe"}
_PLOTTED_KINDS = ("static", "dynamic", "whole", "motion")  # in the order of their colours, as health has them


def plot_loss_curves(run_dirs: Mapping[str, str | Path]) -> dict[str, Figure]:
    """A figure for each loss part that any of the runs has, with a line for each run that has it.

    run_dirs: folders by the name that the legend gives them. A run without metrics has no line.
    """
    curves = {name: load_metrics(folder) for name, folder in run_dirs.items()}
    parts = dict.fromkeys(key for found in curves.values() for key in found if key.startswith(_LOSS_PREFIX))
    return {
        part.removeprefix(_LOSS_PREFIX): plot_lines(curves, part, part.removeprefix(_LOSS_PREFIX)) for part in parts
    }


def plot_health_curves(run_dir: str | Path) -> dict[str, Figure]:
    """A figure for each number that `train.health` logged, with a line for each component that has it."""
    found = load_metrics(run_dir)
    measures: dict[str, dict[str, str]] = {}  # by title: the keys of the components
    for key in found:
        if key.startswith(_HEALTH_PREFIX):
            component, _, measure = key.removeprefix(_HEALTH_PREFIX).partition("/")
            measures.setdefault(measure or component, {})[component] = key
    return {
        title: plot_lines({component: {title: found[key]} for component, key in keys.items()}, title, title)
        for title, keys in measures.items()
    }


def plot_evaluation_curves(run_dir: str | Path) -> dict[str, Figure]:
    """A figure over the epochs for each measure of an evaluation in between and each label, with a line by part."""
    found = load_metrics(run_dir)
    titles: dict[str, dict[str, str]] = {}  # by title: the keys of the parts
    for measure, words in _EVALUATION_TITLES.items():
        for key in found:
            front, _, rest = key.partition("/")
            if front == measure:
                part, _, target = rest.partition("/")
                titles.setdefault(f"{words}: {target}" if target else words, {})[part] = key
    titles = {title: {part: keys[part] for part in _PLOTTED_KINDS if part in keys} for title, keys in titles.items()}
    step, epoch = found["epoch"][-1] if "epoch" in found else (1, 1.0)
    return {
        title: plot_lines(
            {part: {title: found[key]} for part, key in keys.items()}, title, title, steps_per_epoch=step / epoch
        )
        for title, keys in titles.items()
    }


def plot_metric(run_dirs: Mapping[str, str | Path], metric: str, *, title: str) -> Figure | None:
    """A figure of one logged number, with a line for each run that has it; None where none has."""
    curves = {name: load_metrics(folder) for name, folder in run_dirs.items()}
    return plot_lines(curves, metric, title) if any(metric in found for found in curves.values()) else None


_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
_EVALUATION_CAPTION = (
    "Accuracy on labelled videos that were held out, as it was found between the epochs: of the nearest of the other "
    "videos (knn), and of a linear classifier that learned from them (probe)."
)


def progress_sections(run_dir: Path) -> list[Section]:
    """How far a run is; none of a run that is at its end."""
    course = load_run_status(run_dir)
    if course.is_finished and course.locked_by is None:
        return []
    return [Section("How far it is", progress_blocks(course, load_any_config(run_dir).optim.epochs))]


def evaluation_sections(run_dir: Path) -> list[Section]:
    """What was found between the epochs; none of runs that were not evaluated."""
    drawn = plot_evaluation_curves(run_dir)
    return [Section("Between the epochs", [figure_block(drawn, caption=_EVALUATION_CAPTION)])] if drawn else []


def progress_blocks(status: RunStatus, num_epochs: int) -> list[Block]:
    """What a run said last, and whether it goes on."""
    rows = []
    if status.total_steps:
        rows += [
            ["steps", f"{status.step:,} of {status.total_steps:,} ({status.step / status.total_steps:.0%})"],
            ["epochs", f"{status.step * num_epochs / status.total_steps:.2f} of {num_epochs}"],
        ]
    if status.clips_per_second is not None and status.locked_by:
        rows.append(["clips a second", f"{status.clips_per_second:,.0f}"])
    if status.eta_seconds is not None and status.locked_by:
        rows.append(["time left", format_clock(max(0.0, status.eta_seconds - status.seconds_since_update))])
    if status.updated_at is not None:
        rows.append(["last heard of", time.strftime(_TIME_FORMAT, time.localtime(status.updated_at))])
    rows.append(["this page", time.strftime(_TIME_FORMAT)])
    return [Text(_describe_status(status)), Table(["course", "value"], rows)]


def _describe_status(status: RunStatus) -> str:
    if status.locked_by and status.is_finished:
        return f"Its last step is taken; {status.locked_by} is at what follows."
    if status.locked_by:
        return f"It is being trained by {status.locked_by}." + " No step was logged yet." * (not status.step)
    if status.is_finished:
        return "Its last step is taken; the same command again finishes what follows."
    return "It is not being trained, and is not at its end; the same command goes on from its last checkpoint."


_HEALTH_CAPTION = (
    "What a batch says of each component. deviation: of unit embeddings, 1 where they are spread evenly and 0 where "
    "all clips are alike; rank: how many directions they fill; norm: their mean length; gradient: of the component's "
    "loss, by the frames; nearest: how often the nearest clip of another video in the batch shares the label; inside: "
    "the share of eigenvalues that count as static; still: what is left of the dynamic half where clips stand still."
)


def loss_curve_blocks(run_dirs: dict[str, Path]) -> list[Block]:
    """Every loss part of the runs."""
    drawn = {f"loss part {part}": figure for part, figure in plot_loss_curves(run_dirs).items()}
    if not drawn:
        return [Text("No step was logged yet.")]
    return [figure_block(drawn, caption="Every part of the loss over the steps: as logged (thin) and smoothed.")]


def health_sections(run_dir: Path) -> list[Section]:
    """The course of what tells a collapse; none of runs that did not log it."""
    drawn = plot_health_curves(run_dir)
    return [Section("Health", [figure_block(drawn, caption=_HEALTH_CAPTION)])] if drawn else []


def failed_video_blocks(results: Mapping[str, Any]) -> list[Block]:
    """Which videos could not be read, if any."""
    names = results["failed"]
    return [Text(f"{len(names)} videos could not be read: {', '.join(names)}.")] if names else []
