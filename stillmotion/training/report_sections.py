"""Sections that the pages of all training runs share: progress, loss curves, diagnostics, evaluation curves."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from stillmotion.report.charts import MIN_SMOOTHED_VALUES, plot_lines
from stillmotion.report.page_blocks import Block, Section, Table, Text, figure_block
from stillmotion.training.config import RunConfig
from stillmotion.training.run_dir import load_any_config
from stillmotion.training.run_log import MAX_SILENCE, RunStatus, load_metrics, load_run_status
from stillmotion.utils.formatting import format_clock, format_duration

Metrics = Mapping[str, list[tuple[int, float]]]  # pairs of step and value by name

_LOSS_PREFIX = "loss/"
_HEALTH_PREFIX = "health/"
_EVALUATION_TITLES = {"online_knn": "nearest neighbor", "online_probe": "linear probe"}
_PLOTTED_KINDS = ("static", "dynamic", "whole", "motion")  # in the order of their colors
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
NO_STEPS = "No step has been logged yet."
_EVALUATION_CAPTION = (
    "Accuracy on held-out labeled videos after each epoch: k-nearest neighbors (online_knn) and a linear classifier "
    "(online_probe)."
)
_HEALTH_CAPTION = (
    "Training diagnostics per component, from one batch. embedding_std: standard deviation of unit embeddings (1: "
    "spread evenly, 0: collapsed). effective_rank: number of directions used. embedding_norm: mean embedding norm. "
    "loss_grad_norm: gradient of the component's loss with respect to the frame features. batch_knn_accuracy: fraction "
    "of clips whose nearest clip of another video in the batch has the same label. shuffled_key_loss: the loss with "
    "keys of other videos. static_eigenvalue_fraction: fraction of eigenvalues counted as static. still_clip_ratio: "
    "norm of the dynamic component on frozen clips, relative to moving ones."
)


def plot_loss_curves(run_dirs: Mapping[str, str | Path]) -> dict[str, Figure]:
    """Plot every loss part of one or several runs.

    Args:
        run_dirs: Run directories by their names in the legend; a run without metrics has no line.

    Returns:
        A figure for each loss part that any of the runs has.
    """
    curves = {name: load_metrics(run_dir) for name, run_dir in run_dirs.items()}
    keys = dict.fromkeys(key for metrics in curves.values() for key in metrics if key.startswith(_LOSS_PREFIX))
    parts = {key.removeprefix(_LOSS_PREFIX): key for key in keys}
    return {part: plot_lines(curves, key, part) for part, key in parts.items()}


def plot_health_curves(run_dir: str | Path) -> dict[str, Figure]:
    """Plot the training diagnostics of a run: a figure for each, with a line for each component."""
    metrics = load_metrics(run_dir)
    keys_by_title: dict[str, dict[str, str]] = {}
    for key in metrics:
        if key.startswith(_HEALTH_PREFIX):
            component, _, measure = key.removeprefix(_HEALTH_PREFIX).partition("/")
            keys_by_title.setdefault(measure or component, {})[component] = key
    return _plot_by_title(metrics, keys_by_title)


def plot_evaluation_curves(run_dir: str | Path) -> dict[str, Figure]:
    """Plot the accuracies of evaluations during training over the epochs: a figure for each kind and label."""
    metrics = load_metrics(run_dir)
    keys_by_title: dict[str, dict[str, str]] = {}
    for prefix, title in _EVALUATION_TITLES.items():
        for key in metrics:
            front, _, rest = key.partition("/")
            if front == prefix:
                kind, _, target = rest.partition("/")
                keys_by_title.setdefault(f"{title}: {target}" if target else title, {})[kind] = key
    ordered = {
        title: {kind: keys[kind] for kind in _PLOTTED_KINDS if kind in keys} for title, keys in keys_by_title.items()
    }
    step, epoch = metrics["epoch"][-1] if "epoch" in metrics else (1, 1.0)
    return _plot_by_title(metrics, ordered, steps_per_epoch=step / epoch)


def _plot_by_title(
    metrics: Metrics, keys_by_title: Mapping[str, Mapping[str, str]], *, steps_per_epoch: float = 0.0
) -> dict[str, Figure]:
    """Plot a figure for each title, with a line for each name and its metric."""
    return {
        title: plot_lines(
            {name: {title: metrics[key]} for name, key in keys.items()}, title, title, steps_per_epoch=steps_per_epoch
        )
        for title, keys in keys_by_title.items()
    }


def plot_metric(run_dirs: Mapping[str, str | Path], metric: str, *, title: str) -> Figure | None:
    """Plot one logged metric.

    Args:
        run_dirs: Run directories by their names in the legend.
        metric: Name of the metric.
        title: Title of the figure.

    Returns:
        The figure; None if no run has the metric.
    """
    curves = {name: load_metrics(run_dir) for name, run_dir in run_dirs.items()}
    return plot_lines(curves, metric, title) if any(metric in metrics for metrics in curves.values()) else None


def settings_table(config: RunConfig, rows: Sequence[Sequence[str]]) -> Table:
    """Build the table of a run's settings: its recipe, the rows of its verb, optimizer and seed.

    Args:
        config: Configuration of the run.
        rows: Names and values of the settings of its verb.
    """
    optim = config.optim
    epochs = ", ".join(f"{epoch:g}" for epoch in optim.milestones)
    schedule = f"× {optim.gamma:g} at epochs {epochs}" if epochs else "cosine"
    optimizer = (
        f"{optim.name}, learning rate {optim.lr * optim.lr_scale:g} ({schedule}), batch size {optim.batch_size}, "
        f"{optim.epochs} epochs"
    )
    every = [["recipe", config.recipe or "none"], *rows, ["optimizer", optimizer], ["seed", str(config.train.seed)]]
    return Table(["setting", "value"], every)


def loss_curve_blocks(run_dirs: Mapping[str, Path]) -> list[Block]:
    """Build the blocks with every loss part of runs, given by their names in the legend."""
    figures = {f"loss part {part}": figure for part, figure in plot_loss_curves(run_dirs).items()}
    if not figures:
        return [Text(NO_STEPS)]
    lengths = [len(values) for run_dir in run_dirs.values() for values in load_metrics(run_dir).values()]
    is_smoothed = max(lengths) >= MIN_SMOOTHED_VALUES
    how = ", as logged (thin) and smoothed" if is_smoothed else ""
    return [figure_block(figures, caption=f"Every part of the loss over the steps{how}.")]


def health_sections(run_dir: Path) -> list[Section]:
    """Build the section with training diagnostics; none if the run did not log them."""
    figures = plot_health_curves(run_dir)
    return [Section("Training diagnostics", [figure_block(figures, caption=_HEALTH_CAPTION)])] if figures else []


def evaluation_sections(run_dir: Path) -> list[Section]:
    """Build the section with evaluations during training; none if there were none."""
    figures = plot_evaluation_curves(run_dir)
    if not figures:
        return []
    return [Section("Evaluation during training", [figure_block(figures, caption=_EVALUATION_CAPTION)])]


def progress_sections(run_dir: Path) -> list[Section]:
    """Build the section about the progress of a run; none if it is finished."""
    status = load_run_status(run_dir)
    if status.is_finished and status.locked_by is None:
        return []
    return [Section("Progress", progress_blocks(status, load_any_config(run_dir).optim.epochs))]


def progress_blocks(status: RunStatus, num_epochs: int) -> list[Block]:
    """Build the blocks about the progress of a run.

    Args:
        status: Its status.
        num_epochs: Epochs in all.
    """
    rows = []
    if status.total_steps:
        rows += [
            ["steps", f"{status.step:,} of {status.total_steps:,} ({status.step / status.total_steps:.0%})"],
            ["epochs", f"{status.step * num_epochs / status.total_steps:.2f} of {num_epochs}"],
        ]
    if status.clips_per_second is not None and status.locked_by:
        rows.append(["clips per second", f"{status.clips_per_second:,.0f}"])
    if status.eta_seconds is not None and status.locked_by:
        rows.append(["time left", format_clock(max(0.0, status.eta_seconds - status.seconds_since_update))])
    if status.updated_at is not None:
        rows.append(["last update", time.strftime(_TIME_FORMAT, time.localtime(status.updated_at))])
    rows.append(["page written", time.strftime(_TIME_FORMAT)])
    return [Text(_describe_status(status)), Table(["progress", "value"], rows)]


def _describe_status(status: RunStatus) -> str:
    if status.locked_by and status.is_finished:
        return f"The last training step is done; {status.locked_by} is evaluating the run."
    if status.locked_by:
        return f"The run is being trained by {status.locked_by}." + f" {NO_STEPS}" * (not status.step)
    if status.is_finished:
        return "The last training step is done; run the same command again to finish the evaluation."
    silence = status.seconds_since_update
    news = f" (no news for {format_duration(silence)})" if silence > MAX_SILENCE else ""
    return (
        f"The run is not finished and not being trained{news}; run the same command again to resume from its "
        "checkpoint."
    )
