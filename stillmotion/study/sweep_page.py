"""The page of a sweep."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.explain.sweep import cost_plot, sweep_plot
from stillmotion.report.blocks import Block, Code, Section, Table, Text, figures
from stillmotion.report.page import write_page
from stillmotion.study.table import MEMORY, SECONDS, began, claim_rows, columns, table, untrained_rows, values

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


def sweep_report(folder: Path, results: Mapping[str, Any]) -> Path:
    """Write `report.html` into the sweep's folder."""
    points = list(results["points"])
    targets = [c for c in columns(results) if c not in (SECONDS, MEMORY)]
    starts = untrained_rows(results)
    same = {t: float(np.mean(next(iter(starts.values()))[t])) for t in targets} if len(starts) == 1 else {}
    accuracy = {t: [values(results, p, t) for p in points] for t in targets}
    probed = SECONDS in columns(results)
    what, start = ("probe accuracy" if probed else "score"), began(results)
    at_points = sweep_plot(points, accuracy, untrained=same, axis=results["axis"], what=what, start=start)
    drawn = {"accuracy at every point": at_points}
    if probed:
        seconds = [float(np.mean(values(results, p, SECONDS))) for p in points]
        drawn["accuracy against time"] = cost_plot(points, accuracy[targets[-1]], seconds)
    header, rows = table(results)
    told = (_PROBED if probed else _MEASURED) + _STAR + _COST * probed
    sections = [
        Section("What was varied", _varied(results)),
        Section(
            "Accuracy and cost" if probed else "Scores", [figures(drawn), Table(header, rows, told.format(**results))]
        ),
    ]
    if results["claims"]:
        head, judged = claim_rows(results)
        sections.append(Section("Beside the paper", [Table(head, judged)]))
    runs = [[name, "  ".join(found["runs"])] for name, found in results["points"].items()]
    sections.append(Section("Runs", [Table(["point", "run folders, by seed"], runs)]))
    return write_page(folder / "report.html", f"Sweep: {results['title']}", sections)


def _varied(results: Mapping[str, Any]) -> list[Block]:
    rows = [
        [name, ", ".join(f"{place} = {value}" for place, value in found["changes"].items()) or "the recipe as it is"]
        for name, found in results["points"].items()
    ]
    blocks: list[Block] = [
        Text(f"Points of the recipe {results['settings']['recipe'] or 'given'}, each with {results['seeds']} seeds."),
        Table(["point", "what it changes"], rows),
    ]
    return [*blocks, Code(results["command"])] if results["command"] else blocks
