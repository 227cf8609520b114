"""The page of a fine-tuning run, or of its folds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.config import read_config
from stillmotion.config.finetune import FinetuneConfig
from stillmotion.explain.confusion import confusion_plot
from stillmotion.report.blocks import Block, Section, Table, Text, figures
from stillmotion.report.page import broken_blocks, curve_blocks, write_page
from stillmotion.report.retrieval import retrieval_sections
from stillmotion.tasks.start import read_results

_CONFUSION = "Rows are the videos' classes, columns what they were taken for; the darker, the larger the row's share."


def finetune_report(run: str | Path) -> Path:
    """Write `report.html` of a run, or of all folds: what was trained, curves, accuracy, classes and confusion."""
    folder = Path(run)
    results = read_results(folder)
    if "folds" not in results:
        return write_page(folder / "report.html", f"Fine-tuning run: {folder.name}", _sections(folder, results))
    runs = {f"fold {fold}": (folder / f"fold{fold}", found) for fold, found in results["folds"].items()}
    rows = [[name, *_accuracies(found)] for name, (_, found) in runs.items()]
    rows.append(["mean", *_accuracies(results)])
    sections = [Section("Accuracy", [Table(["fold", "top-1", "top-5", "mean over classes"], rows)])]
    for name, (place, found) in runs.items():
        sections += [Section(f"{name}: {s.title}", s.blocks) for s in _sections(place, found)]
    return write_page(folder / "report.html", f"Fine-tuning on {len(runs)} folds: {folder.name}", sections)


def _sections(folder: Path, results: Mapping[str, Any]) -> list[Section]:
    return [
        Section("What was trained", _settings(read_config(folder, FinetuneConfig), results)),
        Section("Loss", curve_blocks({folder.name: folder})),
        Section("Test", _accuracy(results)),
        Section("Confusion", [_confusion(results)]),
        Section("Classes", [_classes(results)]),
        *retrieval_sections(folder),
    ]


def _settings(config: FinetuneConfig, results: Mapping[str, Any]) -> list[Block]:
    data, head, optim = config.data, config.head, config.optim
    steps = ", ".join(f"{epoch:g}" for epoch in optim.milestones)
    course = f"× {optim.gamma:g} at epochs {steps}" if steps else "cosine"
    rows = [
        ["recipe", config.recipe or "none"],
        ["encoder", config.encoder + (", its network with fresh weights" if config.untrained else "")],
        ["videos", f"{data.path}: {results['train_videos']} to train on, {results['test_videos']} to test on"],
        ["split", results["split"]],
        ["label", f"{results['target']}, {len(results['classes'])} classes"],
        ["trained below the head", str(head.unfreeze) + " blocks, the last" * isinstance(head.unfreeze, int)],
        ["head", f"{head.pool} over time, dropout {head.dropout:g}"],
        ["targets", f"label smoothing {head.smoothing:g}, mixup {head.mixup:g}"],
        ["optimiser", f"{optim.name}, rate {optim.lr * optim.scale:g} ({course}), layer decay {optim.layer_decay:g}"],
        ["course", f"{optim.epochs} epochs of batches of {optim.batch}, {results['steps']} steps"],
        ["seed", str(config.train.seed)],
    ]
    return [Table(["setting", "value"], rows)]


def _accuracy(results: Mapping[str, Any]) -> list[Block]:
    rows = [
        ["fine-tuned", *_accuracies(results)],
        ["commonest class", f"{results['majority']:.3f}", "", ""],
    ]
    caption = f"Mean of the softmax over {results['clips']} clips × {results['crops']} crops of each video."
    blocks: list[Block] = [Table(["", "top-1", "top-5", "mean over classes"], rows, caption)]
    if results["untrained_class"]:
        blocks.append(Text(f"{results['untrained_class']} test videos are of classes that no training video has."))
    return blocks + broken_blocks(results)


def _accuracies(results: Mapping[str, Any]) -> list[str]:
    return [f"{results[name]:.3f}" for name in ("top1", "top5", "mean_class")]


def _confusion(results: Mapping[str, Any]) -> Block:
    drawn = confusion_plot(np.array(results["confusion"]), results["classes"])
    return figures({"confusion of classes": drawn}, caption=_CONFUSION)


def _classes(results: Mapping[str, Any]) -> Block:
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
