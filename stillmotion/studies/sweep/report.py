"""HTML report of a sweep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Code, Section, Table, Text, figure_block
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

_PROBE_CAPTION = "Top-1 accuracy of linear probes on the {feature} features: "
_TRANSFER_CAPTION = "Cycle accuracy, inter- and intra-video distances, and scores of label propagation: "
_STAR_CAPTION = (
    "mean ± standard deviation over {seeds} seeds. A star marks a difference from “{reference}” that is significant at "
    "95 % (noise pooled over the points, seeds as blocks)."
)
_COST_CAPTION = " Time is the least CPU time of a few steps on one core; memory is the peak of a step."


def write_sweep_page(output_dir: Path, results: Mapping[str, Any]) -> Path:
    """Write `report.html`.

    Args:
        output_dir: Folder of the sweep.
        results: Its results.

    Returns:
        The path of the report.
    """
    points = list(results["points"])
    targets = [c for c in metric_columns(results) if c not in (STEP_SECONDS, STEP_MEMORY)]
    baselines = untrained_rows(results)
    untrained = {t: float(np.mean(next(iter(baselines.values()))[t])) for t in targets} if len(baselines) == 1 else {}
    accuracy = {t: [seed_values(results, p, t) for p in points] for t in targets}
    is_probe = STEP_SECONDS in metric_columns(results)
    figures = {
        "accuracy at every point": plot_sweep(
            points,
            accuracy,
            untrained=untrained,
            axis_name=results["field"],
            metric_name="probe accuracy" if is_probe else "score",
            baseline_name=baseline_label(results),
        )
    }
    if is_probe:
        seconds = [float(np.mean(seed_values(results, p, STEP_SECONDS))) for p in points]
        figures["accuracy against time"] = plot_accuracy_vs_time(points, accuracy[targets[-1]], seconds)
    header, rows = result_table(results)
    caption = (_PROBE_CAPTION if is_probe else _TRANSFER_CAPTION) + _STAR_CAPTION + _COST_CAPTION * is_probe
    sections = [
        Section("Settings", _settings_blocks(results)),
        Section(
            "Accuracy and cost" if is_probe else "Scores",
            [figure_block(figures), Table(header, rows, caption.format(**results))],
        ),
    ]
    if results["claims"]:
        sections.append(Section("Comparison with the paper", [Table(*claim_table(results))]))
    runs = [[name, "  ".join(point["run_dirs"])] for name, point in results["points"].items()]
    sections.append(Section("Runs", [Table(["point", "run folders, by seed"], runs)]))
    return write_page(output_dir / "report.html", f"Sweep: {results['title']}", sections)


def _settings_blocks(results: Mapping[str, Any]) -> list[Block]:
    rows = [
        [name, ", ".join(f"{field} = {value}" for field, value in point["overrides"].items()) or "unchanged recipe"]
        for name, point in results["points"].items()
    ]
    blocks: list[Block] = [
        Text(
            f"Points of the recipe {results['base_config']['recipe'] or 'given'}, each with {results['seeds']} seeds."
        ),
        Table(["point", "overrides"], rows),
    ]
    return [*blocks, Code(results["command"])] if results["command"] else blocks
