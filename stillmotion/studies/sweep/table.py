"""Tables of a sweep: metrics and cost of every point, and claims of the paper."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.studies.run_pool import TOKEN_FEATURE
from stillmotion.studies.statistics import judge_difference, mean_std, significance_margin
from stillmotion.utils.files import write_text
from stillmotion.utils.formatting import format_table

AVERAGE, STEP_SECONDS, STEP_MEMORY = "average", "step_seconds", "step_memory_mib"
_COSTS = (STEP_SECONDS, STEP_MEMORY)


@dataclass(frozen=True)
class Claim:
    """A claim that one point has a higher metric than another.

    Attributes:
        text: The claim in words.
        higher: Point with the higher value.
        lower: Point with the lower value.
        metric: Column of the table.
        expect_equal: The claim is that they do not differ.
        source: Table or figure of the paper.
    """

    text: str
    higher: str
    lower: str
    metric: str = AVERAGE
    expect_equal: bool = False
    source: str = ""


def metric_columns(results: Mapping[str, Any]) -> list[str]:
    """Return the columns of the table: targets, their average if there are several, and the cost of a step."""
    first = next(iter(results["points"].values()))
    return [*first["accuracy"][results["feature"]], *(cost for cost in _COSTS if cost in first)]


def seed_values(results: Mapping[str, Any], point: str, column: str) -> list[float]:
    """Return the values of a cell, one for each seed.

    Args:
        results: Results of a sweep.
        point: Name of a point.
        column: Name of a column.
    """
    metrics = results["points"][point]
    values: list[float] = metrics[column] if column in _COSTS else metrics["accuracy"][results["feature"]][column]
    return values


def significance_margins(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the smallest significant difference of two points in each column."""
    points = results["points"]
    return {
        c: significance_margin(np.array([seed_values(results, point, c) for point in points]))
        for c in metric_columns(results)
    }


def judge_claim(claim: Claim, results: Mapping[str, Any]) -> dict[str, Any]:
    """Compare a claim with the measured values.

    Args:
        claim: Claim.
        results: Results of a sweep.
    """
    margin = results["significance_margin"][claim.metric]
    more, less = (float(np.mean(seed_values(results, point, claim.metric))) for point in (claim.higher, claim.lower))
    return {
        "claim": claim.text,
        "source": claim.source,
        "metric": claim.metric,
        "values": [more, less],
        "difference": more - less,
        "significance_margin": margin,
        "verdict": judge_difference(more - less, margin, expect_equal=claim.expect_equal),
    }


def untrained_rows(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Return the scores of the networks that the points start from: one row if they are equal."""
    by_point = {name: point["untrained"][results["feature"]] for name, point in results["points"].items()}
    rows: dict[str, dict[str, list[float]]] = {}
    for name, cells in by_point.items():
        if cells not in rows.values():
            rows[f"{baseline_label(results)}, {name}"] = cells
    return {baseline_label(results): next(iter(rows.values()))} if len(rows) == 1 else rows


def baseline_label(results: Mapping[str, Any]) -> str:
    """Return what the networks are called before training."""
    return "frozen" if results["feature"] == TOKEN_FEATURE else "untrained"


def result_table(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: mean ± standard deviation over seeds, with a star if it differs from the reference.

    A star marks a difference beyond `significance_margin`.
    """
    columns = metric_columns(results)
    rows = []
    for name in results["points"]:
        rows.append([name, *(_format_cell(results, name, column) for column in columns)])
    for name, cells in untrained_rows(results).items():
        rows.append([name, *(_format_mean_std(cells[c], c) if c in cells else "" for c in columns)])
    units = {STEP_SECONDS: "s/step", STEP_MEMORY: "MiB"}
    return [results["field"] or "point", *(units.get(c, c) for c in columns)], rows


def format_sweep_table(results: Mapping[str, Any]) -> list[str]:
    """Format the table for a terminal."""
    header, rows = result_table(results)
    kind, seeds, reference = results["feature"], results["seeds"], results["reference"]
    kind = "projected tokens" if kind == TOKEN_FEATURE else f"{kind} features"
    caption = f"{kind}, mean ± standard deviation over {seeds} seeds; *: differs from {reference}"
    return [*format_table([header, *rows]), caption]


def claim_table(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: each claim, the measured values, and the verdict."""
    rows = []
    for claim in results["claims"]:
        digits = 1 if claim["metric"] == STEP_MEMORY else 3
        values = ", ".join(f"{v:.{digits}f}" for v in claim["values"])
        margin = "" if claim["significance_margin"] is None else f"{claim['significance_margin']:.{digits}f}"
        difference = f"{claim['difference']:+.{digits}f}"
        rows.append([claim["claim"], claim["source"], claim["metric"], values, difference, margin, claim["verdict"]])
    return ["claim", "source", "metric", "measured", "difference", "margin", "verdict"], rows


def _format_cell(results: Mapping[str, Any], point: str, column: str) -> str:
    values = seed_values(results, point, column)
    reference = seed_values(results, results["reference"], column)
    margin = results["significance_margin"][column]
    differs = margin is not None and abs(np.mean(values) - np.mean(reference)) > margin and column not in _COSTS
    return _format_mean_std(values, column) + "*" * bool(differs)


def _format_mean_std(values: Sequence[float], column: str) -> str:
    mean, std = mean_std(np.array(values))
    digits = 1 if column == STEP_MEMORY else 3
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if len(values) > 1 and column != STEP_MEMORY else "")


def write_csv(path: Path, results: Mapping[str, Any]) -> None:
    """Write the table with mean and standard deviation in separate columns.

    Args:
        path: File to write.
        results: Results of a sweep.
    """
    columns, text = metric_columns(results), io.StringIO()
    writer = csv.writer(text)
    writer.writerow([results["field"] or "point", *(f"{c} {what}" for c in columns for what in ("mean", "std"))])
    for name in results["points"]:
        writer.writerow([name, *(n for c in columns for n in mean_std(np.array(seed_values(results, name, c))))])
    for name, cells in untrained_rows(results).items():
        row = [list(mean_std(np.array(cells[c]))) if c in cells else ["", ""] for c in columns]
        writer.writerow([name, *(n for pair in row for n in pair)])
    write_text(path, text.getvalue())
