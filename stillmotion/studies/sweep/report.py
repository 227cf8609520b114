"""The page of a sweep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.report.blocks import Block, Code, Section, Table, Text, figure_block
from stillmotion.report.page import write_page
from stillmotion.studies.sweep.plots import plot_accuracy_vs_time, plot_sweep
from stillmotion.studies.sweep.table import (
    STEP_MEMORY,
    STEP_SECONDS,
    baseline_label,
    claim_table,
    metric_columns,
    result_table,
    seed_values,
    untrained_rows,
)

_PROBED = "Top-1 of linear probes on the {feature} features: "
_MEASURED = (
    "How patches find back, and how far videos and frames lie apart, in videos that were not trained on where others "
    "were given; J&F of masks that were carried on: "
)
_STAR = (
    "mean ± standard deviation over {seeds} seeds. A star: apart from “{reference}” by more than the seeds explain at "
    "95 % (noise pooled over the points, seeds as blocks)."
)
_COST = (
    " A step's time is the least of a few, in CPU seconds of one core; its memory is torch's peak, without the weights."
)


def write_sweep_page(output_dir: Path, results: Mapping[str, Any]) -> Path:
    """Write `report.html` into the sweep's folder."""
    points = list(results["points"])
    targets = [c for c in metric_columns(results) if c not in (STEP_SECONDS, STEP_MEMORY)]
    starts = untrained_rows(results)
    same = {t: float(np.mean(next(iter(starts.values()))[t])) for t in targets} if len(starts) == 1 else {}
    accuracy = {t: [seed_values(results, p, t) for p in points] for t in targets}
    probed = STEP_SECONDS in metric_columns(results)
    what, start = ("probe accuracy" if probed else "score"), baseline_label(results)
    at_points = plot_sweep(
        points, accuracy, untrained=same, axis_name=results["field"], metric_name=what, baseline_name=start
    )
    drawn = {"accuracy at every point": at_points}
    if probed:
        seconds = [float(np.mean(seed_values(results, p, STEP_SECONDS))) for p in points]
        drawn["accuracy against time"] = plot_accuracy_vs_time(points, accuracy[targets[-1]], seconds)
    header, rows = result_table(results)
    told = (_PROBED if probed else _MEASURED) + _STAR + _COST * probed
    sections = [
        Section("Settings", _settings_blocks(results)),
        Section(
            "Accuracy and cost" if probed else "Scores",
            [figure_block(drawn), Table(header, rows, told.format(**results))],
        ),
    ]
    if results["claims"]:
        head, judged = claim_table(results)
        sections.append(Section("Comparison with the paper", [Table(head, judged)]))
    runs = [[name, "  ".join(found["run_dirs"])] for name, found in results["points"].items()]
    sections.append(Section("Runs", [Table(["point", "run folders, by seed"], runs)]))
    return write_page(output_dir / "report.html", f"Sweep: {results['title']}", sections)


def _settings_blocks(results: Mapping[str, Any]) -> list[Block]:
    rows = [
        [name, ", ".join(f"{place} = {value}" for place, value in found["overrides"].items()) or "the recipe as it is"]
        for name, found in results["points"].items()
    ]
    blocks: list[Block] = [
        Text(
            f"Points of the recipe {results['base_config']['recipe'] or 'given'}, each with {results['seeds']} seeds."
        ),
        Table(["point", "what it changes"], rows),
    ]
    return [*blocks, Code(results["command"])] if results["command"] else blocks
