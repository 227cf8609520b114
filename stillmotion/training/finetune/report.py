"""HTML report of a fine-tuning run: settings, curves, accuracy per class and confusion matrix."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Section, Table, Text, failed_video_blocks, figure_block
from stillmotion.report.plot_style import PALETTE, TEXT_COLOR, escape_mathtext, new_axes
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.report_sections import loss_curve_blocks, settings_table
from stillmotion.training.run_dir import load_config, load_results

_MAX_CLASSES_WITH_COUNTS = 12  # with more classes, numbers in cells are too small to read
_MAX_CLASSES_WITH_NAMES = 60


def plot_confusion_matrix(counts: np.ndarray, classes: Sequence[str]) -> Figure:
    """Plot a confusion matrix, normalized over rows.

    Args:
        counts: Counts (C, C); rows are true classes, columns predicted ones.
        classes: Names of the classes.
    """
    num_classes = len(classes)
    side = float(np.clip(1.6 + 0.42 * num_classes, 3.2, 9.0))
    figure, axes = new_axes(width=side + 0.8, height=side)
    fractions = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.grid(visible=False)
    axes.imshow(
        np.dstack([np.broadcast_to(to_rgb(PALETTE[1]), (num_classes, num_classes, 3)), fractions]),
        interpolation="nearest",
    )
    if num_classes <= _MAX_CLASSES_WITH_COUNTS:
        for row, column in zip(*np.nonzero(counts), strict=True):
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=TEXT_COLOR)
    axes.set(xlabel="predicted", ylabel="class")
    font_size = max(3.0, min(8.0, 150 / num_classes))
    if num_classes <= _MAX_CLASSES_WITH_NAMES:
        names = [escape_mathtext(name) for name in classes]
        axes.set_xticks(range(num_classes), names, rotation=90, fontsize=font_size)
        axes.set_yticks(range(num_classes), names, fontsize=font_size)
    return figure


_CONFUSION_CAPTION = (
    "Rows are true classes, columns are predicted classes; the darker, the larger the fraction of the row."
)


def write_finetune_page(run_dir: str | Path) -> Path:
    """Write `report.html` of a run, or of all folds, and return its path."""
    folder = Path(run_dir)
    results = load_results(folder)
    if "folds" not in results:
        return write_page(folder / "report.html", f"Fine-tuning run: {folder.name}", _sections(folder, results))
    runs = {f"fold {fold}": (folder / f"fold{fold}", result) for fold, result in results["folds"].items()}
    rows = [[name, *_format_accuracies(result)] for name, (_, result) in runs.items()]
    rows.append(["mean", *_format_accuracies(results)])
    sections = [Section("Accuracy", [Table(["fold", "top-1", "top-5", "mean over classes"], rows)])]
    for name, (run_dir, result) in runs.items():
        sections += [Section(f"{name}: {s.title}", s.blocks) for s in _sections(run_dir, result)]
    return write_page(folder / "report.html", f"Fine-tuning on {len(runs)} folds: {folder.name}", sections)


def _sections(run_dir: Path, results: Mapping[str, Any]) -> list[Section]:
    return [
        Section("Settings", [_settings(load_config(run_dir, FinetuneConfig), results)]),
        Section("Loss", loss_curve_blocks({run_dir.name: run_dir})),
        Section("Test", _accuracy_blocks(results)),
        Section("Confusion", [_confusion_block(results)]),
        Section("Classes", [_class_table(results)]),
        *retrieval_sections(run_dir),
    ]


def _settings(config: FinetuneConfig, results: Mapping[str, Any]) -> Table:
    data, head = config.data, config.head
    rows = [
        ["encoder", config.encoder + (", trained from scratch" if config.from_scratch else "")],
        ["videos", f"{data.path}: {results['train_videos']} training, {results['test_videos']} test"],
        ["split", results["split_description"]],
        ["label", f"{results['target']}, {len(results['classes'])} classes"],
        ["trained layers", f"the last {head.unfreeze} blocks" if isinstance(head.unfreeze, int) else head.unfreeze],
        ["head", f"{head.pool} over time, dropout {head.dropout:g}"],
        ["targets", f"label smoothing {head.label_smoothing:g}, mixup {head.mixup_alpha:g}"],
        ["layer decay", f"{config.optim.layer_decay:g}"],
        ["steps", str(results["steps"])],
    ]
    return settings_table(config, rows)


def _accuracy_blocks(results: Mapping[str, Any]) -> list[Block]:
    rows = [
        ["fine-tuned", *_format_accuracies(results)],
        ["majority class", f"{results['majority_accuracy']:.3f}", "", ""],
    ]
    caption = (
        f"Mean of the softmax over {results['num_test_clips']} clips × {results['num_test_crops']} crops of each video."
    )
    blocks: list[Block] = [Table(["", "top-1", "top-5", "mean over classes"], rows, caption)]
    if results["num_unseen_class_videos"]:
        blocks.append(Text(f"{results['num_unseen_class_videos']} test videos are of classes without training videos."))
    return blocks + failed_video_blocks(results["failed"])


def _format_accuracies(results: Mapping[str, Any]) -> list[str]:
    return [f"{results[name]:.3f}" for name in ("top1", "top5", "mean_class_accuracy")]


def _confusion_block(results: Mapping[str, Any]) -> Block:
    figure = plot_confusion_matrix(np.array(results["confusion"]), results["classes"])
    return figure_block({"confusion matrix": figure}, caption=_CONFUSION_CAPTION)


def _class_table(results: Mapping[str, Any]) -> Block:
    """Return a row for each class, the worst first, with its most frequent wrong prediction."""
    table, classes = np.array(results["confusion"]), results["classes"]
    wrong = table - np.diag(np.diag(table))
    rows = []
    for i in np.argsort([results["per_class"][name] or 0.0 for name in classes], kind="stable"):
        name, mistaken = classes[i], int(wrong[i].argmax())
        accuracy = results["per_class"][name]
        error = f"{classes[mistaken]} ({wrong[i, mistaken]})" if wrong[i].any() else ""
        rows.append([name, str(table[i].sum()), "none tested" if accuracy is None else f"{accuracy:.3f}", error])
    return Table(["class", "test videos", "accuracy", "most frequent error"], rows)
