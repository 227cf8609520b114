"""HTML report of an action segmentation run: scores, timelines and recall per action."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.functional.segmentation_metrics import find_segments
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Section, Table, failed_video_blocks, figure_block
from stillmotion.report.plot_style import PALETTE, TEXT_COLOR, escape_mathtext, new_axes, save_figure
from stillmotion.training.report_sections import loss_curve_blocks
from stillmotion.training.segment.task import SegmentPredictions, load_predictions
from stillmotion.utils.files import ensure_dir
from stillmotion.utils.formatting import format_table

_BAR_HEIGHT, _VIDEO_GAP = 0.42, 0.3  # heights of a bar, and of the space between two videos
_LEGEND_COLUMNS = 4


def plot_timelines(
    predicted: Mapping[str, np.ndarray],
    target: Mapping[str, np.ndarray],
    actions: Sequence[str],
    *,
    max_videos: int = 8,
) -> Figure:
    """Plot the predicted labels of videos above the true ones; all videos have the same length in the plot.

    Args:
        predicted: Predicted labels (T,) by video.
        target: True labels (T,) by video.
        actions: Names of the actions.
        max_videos: Number of evenly chosen videos.
    """
    names = list(target)
    names = [names[i] for i in np.unique(np.linspace(0, len(names) - 1, max_videos).round().astype(int))]
    labels_used = sorted(
        {int(label) for name in names for labels in (predicted[name], target[name]) for label in labels}
    )
    color = dict(zip(labels_used, _action_colors(len(labels_used)), strict=True))
    step = 2 * _BAR_HEIGHT + _VIDEO_GAP
    rows = -(-len(labels_used) // _LEGEND_COLUMNS)
    figure, axes = new_axes(width=8.4, height=0.5 * len(names) + 0.24 * rows + 0.7)
    for row, name in enumerate(names):
        for labels, top in ((predicted[name], row * step), (target[name], row * step + _BAR_HEIGHT)):
            for segment in find_segments(labels):
                start, length = segment.start / len(labels), (segment.stop - segment.start) / len(labels)
                axes.broken_barh([(start, length)], (top, 0.9 * _BAR_HEIGHT), color=color[segment.label], linewidth=0)
    axes.set_yticks([row * step + 0.95 * _BAR_HEIGHT for row in range(len(names))], [escape_mathtext(n) for n in names])
    axes.set_ylim(len(names) * step - _VIDEO_GAP, -0.05)
    axes.set_xlim(0, 1)
    axes.set_xlabel("fraction of the video; predicted (top) and true (bottom) actions")
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    figure.legend(
        handles=[Patch(color=color[label], label=escape_mathtext(actions[label])) for label in labels_used],
        loc="outside lower center",
        ncols=_LEGEND_COLUMNS,
        frameon=False,
        fontsize=8,
        labelcolor=TEXT_COLOR,
    )
    return figure


def _action_colors(count: int) -> Sequence[str]:
    """Return the palette of all figures, or as many hues as there are actions."""
    if count <= len(PALETTE):
        return PALETTE[:count]
    hues = matplotlib.colormaps["turbo"](np.linspace(0.03, 0.97, count))
    return [matplotlib.colors.to_hex(hue) for hue in hues]


SCORE_NAMES = {"edit": "Edit", "accuracy": "accuracy", "f1@10": "F1@10", "f1@25": "F1@25", "f1@50": "F1@50"}
_TIMELINES_CAPTION = "Evenly chosen test videos, scaled to the same length. Colors are actions."


def write_segment_page(run_dir: str | Path, predictions: SegmentPredictions | None = None) -> Path:
    """Write `report.html` and `timelines.png` of a run.

    Args:
        run_dir: Run folder.
        predictions: Predictions of the run; None loads them.

    Returns:
        The path of the report.
    """
    predictions = predictions or load_predictions(run_dir)
    results = predictions.results
    figure = plot_timelines(predictions.predictions, predictions.ground_truth, predictions.actions)
    save_figure(figure, ensure_dir(run_dir, mark_generated=True) / "timelines.png", dpi=150)
    sections = [
        Section("Scores", [_score_table(results), *failed_video_blocks(results["failed"])]),
        Section("Timelines", [figure_block({"timelines of test videos": figure}, caption=_TIMELINES_CAPTION)]),
        Section("Actions", [_recall_table(results)]),
        Section("Losses", loss_curve_blocks({results["head"]: Path(run_dir)})),
        *retrieval_sections(run_dir),
    ]
    return write_page(Path(run_dir) / "report.html", f"Action segmentation run: {Path(run_dir).name}", sections)


def format_segmentation_results(results: dict[str, Any]) -> list[str]:
    """Format the scores as lines for a terminal, beside those of the majority baseline."""
    return format_table([["", *SCORE_NAMES.values()], *_score_rows(results)])


def _score_rows(results: dict[str, Any]) -> list[list[str]]:
    named = {
        results["head"]: results["metrics"],
        f"always {results['majority_baseline']['action']}": results["majority_baseline"],
    }
    return [[name, *(f"{scores[key]:.1f}" for key in SCORE_NAMES)] for name, scores in named.items()]


def _score_table(results: dict[str, Any]) -> Table:
    caption = (
        f"In percent, on {results['test_videos']} test videos of fold {results['fold']} of {results['data']}; head "
        f"{results['head']} trained on features of {results['encoder']} of {results['train_videos']} videos."
    )
    return Table(["", *SCORE_NAMES.values()], _score_rows(results), caption)


def _recall_table(results: dict[str, Any]) -> Table:
    rows = [[name, f"{recall:.1f}"] for name, recall in results["frame_recall"].items()]
    return Table(["action", "recall, %"], rows, "Fraction of the frames of each action that are predicted correctly.")
