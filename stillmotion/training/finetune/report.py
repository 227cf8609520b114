"""Which classes are taken for which."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.report.blocks import Block, Section, Table, Text, figure_block
from stillmotion.report.page import write_page
from stillmotion.report.plot_style import PALETTE, TEXT_COLOR, escape_mathtext, new_axes
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.report import failed_video_blocks, loss_curve_blocks
from stillmotion.training.run_dir import load_config, load_results

_MAX_CLASSES_WITH_COUNTS = 12  # with more classes, numbers in cells are too small to read
_MAX_CLASSES_WITH_NAMES = 60


def plot_confusion_matrix(counts: np.ndarray, classes: Sequence[str]) -> Figure:
    """A square for each pair of classes, as dark as the share of the row's videos that were taken for the column's.

    counts: (C, C); a row is the videos' class, a column what they were taken for.
    """
    number = len(classes)
    side = float(np.clip(1.6 + 0.42 * number, 3.2, 9.0))
    figure, axes = new_axes(width=side + 0.8, height=side)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.grid(visible=False)
    axes.imshow(np.dstack([np.broadcast_to(to_rgb(PALETTE[1]), (number, number, 3)), shares]), interpolation="nearest")
    if number <= _MAX_CLASSES_WITH_COUNTS:
        for row, column in zip(*np.nonzero(counts), strict=True):
            axes.text(column, row, str(counts[row, column]), ha="center", va="center", fontsize=7, color=TEXT_COLOR)
    axes.set(xlabel="taken for", ylabel="class")
    small = max(3.0, min(8.0, 150 / number))
    if number <= _MAX_CLASSES_WITH_NAMES:
        names = [escape_mathtext(name) for name in classes]
        axes.set_xticks(range(number), names, rotation=90, fontsize=small)
        axes.set_yticks(range(number), names, fontsize=small)
    return figure


_CONFUSION_CAPTION = (
    "Rows are the videos' classes, columns what they were taken for; the darker, the larger the row's share."
)


def write_finetune_page(run_dir: str | Path) -> Path:
    """Write `report.html` of a run, or of all folds: what was trained, curves, accuracy, classes and confusion."""
    folder = Path(run_dir)
    results = load_results(folder)
    if "folds" not in results:
        return write_page(folder / "report.html", f"Fine-tuning run: {folder.name}", _sections(folder, results))
    runs = {f"fold {fold}": (folder / f"fold{fold}", found) for fold, found in results["folds"].items()}
    rows = [[name, *_format_accuracies(found)] for name, (_, found) in runs.items()]
    rows.append(["mean", *_format_accuracies(results)])
    sections = [Section("Accuracy", [Table(["fold", "top-1", "top-5", "mean over classes"], rows)])]
    for name, (place, found) in runs.items():
        sections += [Section(f"{name}: {s.title}", s.blocks) for s in _sections(place, found)]
    return write_page(folder / "report.html", f"Fine-tuning on {len(runs)} folds: {folder.name}", sections)


def _sections(run_dir: Path, results: Mapping[str, Any]) -> list[Section]:
    return [
        Section("What was trained", _settings(load_config(run_dir, FinetuneConfig), results)),
        Section("Loss", loss_curve_blocks({run_dir.name: run_dir})),
        Section("Test", _accuracy_blocks(results)),
        Section("Confusion", [_confusion_block(results)]),
        Section("Classes", [_class_table(results)]),
        *retrieval_sections(run_dir),
    ]


def _settings(config: FinetuneConfig, results: Mapping[str, Any]) -> list[Block]:
    data, head, optim = config.data, config.head, config.optim
    steps = ", ".join(f"{epoch:g}" for epoch in optim.milestones)
    course = f"× {optim.gamma:g} at epochs {steps}" if steps else "cosine"
    rows = [
        ["recipe", config.recipe or "none"],
        ["encoder", config.encoder + (", its network with fresh weights" if config.from_scratch else "")],
        ["videos", f"{data.path}: {results['train_videos']} to train on, {results['test_videos']} to test on"],
        ["split", results["split_description"]],
        ["label", f"{results['target']}, {len(results['classes'])} classes"],
        ["trained below the head", str(head.unfreeze) + " blocks, the last" * isinstance(head.unfreeze, int)],
        ["head", f"{head.pool} over time, dropout {head.dropout:g}"],
        ["targets", f"label smoothing {head.label_smoothing:g}, mixup {head.mixup_alpha:g}"],
        [
            "optimiser",
            f"{optim.name}, rate {optim.lr * optim.lr_scale:g} ({course}), layer decay {optim.layer_decay:g}",
        ],
        ["course", f"{optim.epochs} epochs of batches of {optim.batch_size}, {results['steps']} steps"],
        ["seed", str(config.train.seed)],
    ]
    return [Table(["setting", "value"], rows)]


def _accuracy_blocks(results: Mapping[str, Any]) -> list[Block]:
    rows = [
        ["fine-tuned", *_format_accuracies(results)],
        ["commonest class", f"{results['majority_accuracy']:.3f}", "", ""],
    ]
    caption = (
        f"Mean of the softmax over {results['num_test_clips']} clips × {results['num_test_crops']} crops of each video."
    )
    blocks: list[Block] = [Table(["", "top-1", "top-5", "mean over classes"], rows, caption)]
    if results["num_unseen_class_videos"]:
        blocks.append(
            Text(f"{results['num_unseen_class_videos']} test videos are of classes that no training video has.")
        )
    return blocks + failed_video_blocks(results)


def _format_accuracies(results: Mapping[str, Any]) -> list[str]:
    return [f"{results[name]:.3f}" for name in ("top1", "top5", "mean_class_accuracy")]


def _confusion_block(results: Mapping[str, Any]) -> Block:
    drawn = plot_confusion_matrix(np.array(results["confusion"]), results["classes"])
    return figure_block({"confusion of classes": drawn}, caption=_CONFUSION_CAPTION)


def _class_table(results: Mapping[str, Any]) -> Block:
    """A row for each class, the worst first, with what it is most often taken for."""
    table, classes = np.array(results["confusion"]), results["classes"]
    wrong = table - np.diag(np.diag(table))
    rows = []
    for i in np.argsort([results["per_class"][name] or 0.0 for name in classes], kind="stable"):
        name, mistaken = classes[i], int(wrong[i].argmax())
        share = results["per_class"][name]
        taken = f"{classes[mistaken]} ({wrong[i, mistaken]})" if wrong[i].any() else ""
        rows.append([name, str(table[i].sum()), "none tested" if share is None else f"{share:.3f}", taken])
    return Table(["class", "test videos", "accuracy", "most often taken for"], rows)
