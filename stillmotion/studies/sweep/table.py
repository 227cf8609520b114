"""The results of a sweep as a table: what each point reached and cost, and what the paper found."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.studies.run_pool import TOKEN_FEATURE
from stillmotion.studies.statistics import judge_difference, mean_std, significance_margin
from stillmotion.utils.formatting import format_table

AVERAGE, STEP_SECONDS, STEP_MEMORY = "average", "step_seconds", "step_memory_mib"
_COSTS = (STEP_SECONDS, STEP_MEMORY)


@dataclass(frozen=True)
class Claim:
    """That one point has more than another of something: accuracy on average or of one target, seconds or memory.

    expect_equal: that they do not differ. source: who says so.
    """

    text: str
    higher: str
    lower: str
    metric: str = AVERAGE
    expect_equal: bool = False
    source: str = ""


def metric_columns(results: Mapping[str, Any]) -> list[str]:
    """What the table has of each point: the targets, their average where there is one, and the cost of a step."""
    first = next(iter(results["points"].values()))
    return [*first["accuracy"][results["feature"]], *(cost for cost in _COSTS if cost in first)]


def seed_values(results: Mapping[str, Any], point: str, column: str) -> list[float]:
    """A number for each seed."""
    found = results["points"][point]
    numbers: list[float] = found[column] if column in _COSTS else found["accuracy"][results["feature"]][column]
    return numbers


def significance_margins(results: Mapping[str, Any]) -> dict[str, float | None]:
    """How far two points must lie apart in each column to differ."""
    points = results["points"]
    return {
        c: significance_margin(np.array([seed_values(results, point, c) for point in points]))
        for c in metric_columns(results)
    }


def judge_claim(claim: Claim, results: Mapping[str, Any]) -> dict[str, Any]:
    """The claim beside what was measured."""
    noise = results["significance_margin"][claim.metric]
    more, less = (float(np.mean(seed_values(results, point, claim.metric))) for point in (claim.higher, claim.lower))
    return {
        "claim": claim.text,
        "source": claim.source,
        "metric": claim.metric,
        "values": [more, less],
        "difference": more - less,
        "significance_margin": noise,
        "verdict": judge_difference(more - less, noise, expect_equal=claim.expect_equal),
    }


def untrained_rows(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Accuracies of the networks that the points start from: one row if it is the same for all."""
    by_point = {name: found["untrained"][results["feature"]] for name, found in results["points"].items()}
    rows: dict[str, dict[str, list[float]]] = {}
    for name, cells in by_point.items():
        if cells not in rows.values():
            rows[f"{baseline_label(results)}, {name}"] = cells
    return {baseline_label(results): next(iter(rows.values()))} if len(rows) == 1 else rows


def baseline_label(results: Mapping[str, Any]) -> str:
    """What the points' networks are called before training."""
    return "frozen" if results["feature"] == TOKEN_FEATURE else "untrained"


def result_table(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of text: mean ± standard deviation over seeds, a star where it differs from the reference.

    A star stands at a difference beyond the margin of `statistics.margin`.
    """
    shown = metric_columns(results)
    rows = []
    for name in results["points"]:
        rows.append([name, *(_format_cell(results, name, column) for column in shown)])
    for name, cells in untrained_rows(results).items():
        rows.append([name, *(_format_mean_std(cells[c], c) if c in cells else "" for c in shown)])
    units = {STEP_SECONDS: "s/step", STEP_MEMORY: "MiB"}
    return [results["field"] or "point", *(units.get(c, c) for c in shown)], rows


def format_sweep_table(results: Mapping[str, Any]) -> list[str]:
    """The table for a terminal."""
    header, rows = result_table(results)
    kind, seeds, reference = results["feature"], results["seeds"], results["reference"]
    kind = "projected tokens" if kind == TOKEN_FEATURE else f"{kind} features"
    told = f"{kind}, mean ± standard deviation over {seeds} seeds; *: differs from {reference}"
    return [*format_table([header, *rows]), told]


def claim_table(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of text: each claim, what was measured, and whether they agree."""
    rows = []
    for found in results["claims"]:
        digits = 1 if found["metric"] == STEP_MEMORY else 3
        more, less = (f"{v:.{digits}f}" for v in found["values"])
        noise = "" if found["significance_margin"] is None else f"{found['significance_margin']:.{digits}f}"
        difference = f"{found['difference']:+.{digits}f}"
        rows.append(
            [found["claim"], found["source"], found["metric"], f"{more}, {less}", difference, noise, found["verdict"]]
        )
    return ["claim", "source", "metric", "measured", "difference", "margin", "verdict"], rows


def _format_cell(results: Mapping[str, Any], point: str, column: str) -> str:
    own = seed_values(results, point, column)
    base = seed_values(results, results["reference"], column)
    noise = results["significance_margin"][column]
    star = noise is not None and abs(np.mean(own) - np.mean(base)) > noise and column not in _COSTS
    return _format_mean_std(own, column) + "*" * bool(star)


def _format_mean_std(numbers: Sequence[float], column: str) -> str:
    mean, std = mean_std(np.array(numbers))
    digits = 1 if column == STEP_MEMORY else 3
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if len(numbers) > 1 and column != STEP_MEMORY else "")


def write_csv(path: Path, results: Mapping[str, Any]) -> None:
    """The table with mean and standard deviation in columns of their own."""
    shown = metric_columns(results)
    with path.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow([results["field"] or "point", *(f"{c} {what}" for c in shown for what in ("mean", "std"))])
        for name in results["points"]:
            writer.writerow([name, *(n for c in shown for n in mean_std(np.array(seed_values(results, name, c))))])
        for name, cells in untrained_rows(results).items():
            row = [list(mean_std(np.array(cells[c]))) if c in cells else ["", ""] for c in shown]
            writer.writerow([name, *(n for pair in row for n in pair)])
