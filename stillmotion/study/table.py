"""The results of a sweep as a table: what each point reached and cost, and what the paper found."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.report.text import aligned
from stillmotion.study.measured import KIND
from stillmotion.study.statistics import margin, spread, verdict

AVERAGE, SECONDS, MEMORY = "average", "seconds", "memory"
_COSTS = (SECONDS, MEMORY)


@dataclass(frozen=True)
class Claim:
    """That one point has more than another of something: accuracy on average or of one target, seconds or memory.

    same: that they do not differ. source: who says so.
    """

    text: str
    more: str
    less: str
    of: str = AVERAGE
    same: bool = False
    source: str = ""


def columns(results: Mapping[str, Any]) -> list[str]:
    """What the table has of each point: the targets, their average where there is one, and the cost of a step."""
    first = next(iter(results["points"].values()))
    return [*first["accuracy"][results["feature"]], *(cost for cost in _COSTS if cost in first)]


def values(results: Mapping[str, Any], point: str, column: str) -> list[float]:
    """A number for each seed."""
    found = results["points"][point]
    numbers: list[float] = found[column] if column in _COSTS else found["accuracy"][results["feature"]][column]
    return numbers


def margins(results: Mapping[str, Any]) -> dict[str, float | None]:
    """How far two points must lie apart in each column to differ."""
    points = results["points"]
    return {c: margin(np.array([values(results, point, c) for point in points])) for c in columns(results)}


def judged(claim: Claim, results: Mapping[str, Any]) -> dict[str, Any]:
    """The claim beside what was measured."""
    noise = results["margin"][claim.of]
    more, less = (float(np.mean(values(results, point, claim.of))) for point in (claim.more, claim.less))
    return {
        "claim": claim.text,
        "source": claim.source,
        "of": claim.of,
        "values": [more, less],
        "difference": more - less,
        "margin": noise,
        "verdict": verdict(more - less, noise, same=claim.same),
    }


def untrained_rows(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Accuracies of the networks that the points start from: one row if it is the same for all."""
    by_point = {name: found["untrained"][results["feature"]] for name, found in results["points"].items()}
    rows: dict[str, dict[str, list[float]]] = {}
    for name, cells in by_point.items():
        if cells not in rows.values():
            rows[f"{began(results)}, {name}"] = cells
    return {began(results): next(iter(rows.values()))} if len(rows) == 1 else rows


def began(results: Mapping[str, Any]) -> str:
    """What the points' networks are called before training."""
    return "frozen" if results["feature"] == KIND else "untrained"


def table(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of text: mean ± standard deviation over seeds, a star where it differs from the reference.

    A star stands at a difference beyond the margin of `statistics.margin`.
    """
    shown = columns(results)
    rows = []
    for name in results["points"]:
        rows.append([name, *(_cell(results, name, column) for column in shown)])
    for name, cells in untrained_rows(results).items():
        rows.append([name, *(_text(cells[c], c) if c in cells else "" for c in shown)])
    units = {SECONDS: "s/step", MEMORY: "MiB"}
    return [results["axis"] or "point", *(units.get(c, c) for c in shown)], rows


def lines(results: Mapping[str, Any]) -> list[str]:
    """The table for a terminal."""
    header, rows = table(results)
    kind, seeds, reference = results["feature"], results["seeds"], results["reference"]
    kind = "projected tokens" if kind == KIND else f"{kind} features"
    told = f"{kind}, mean ± standard deviation over {seeds} seeds; *: differs from {reference}"
    return [*aligned([header, *rows]), told]


def claim_rows(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of text: each claim, what was measured, and whether they agree."""
    rows = []
    for found in results["claims"]:
        digits = 1 if found["of"] == MEMORY else 3
        more, less = (f"{v:.{digits}f}" for v in found["values"])
        noise = "" if found["margin"] is None else f"{found['margin']:.{digits}f}"
        difference = f"{found['difference']:+.{digits}f}"
        rows.append(
            [found["claim"], found["source"], found["of"], f"{more}, {less}", difference, noise, found["verdict"]]
        )
    return ["claim", "source", "of", "here", "difference", "noise", "verdict"], rows


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def _cell(results: Mapping[str, Any], point: str, column: str) -> str:
    own = values(results, point, column)
    base = values(results, results["reference"], column)
    noise = results["margin"][column]
    star = noise is not None and abs(np.mean(own) - np.mean(base)) > noise and column not in _COSTS
    return _text(own, column) + "*" * bool(star)


def _text(numbers: Sequence[float], column: str) -> str:
    mean, std = spread(np.array(numbers))
    digits = 1 if column == MEMORY else 3
    return f"{mean:.{digits}f}" + (f" ± {std:.{digits}f}" if len(numbers) > 1 and column != MEMORY else "")


def write_csv(file: Path, results: Mapping[str, Any]) -> None:
    """The table with mean and standard deviation in columns of their own."""
    shown = columns(results)
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow([results["axis"] or "point", *(f"{c} {what}" for c in shown for what in ("mean", "std"))])
        for name in results["points"]:
            writer.writerow([name, *(n for c in shown for n in spread(np.array(values(results, name, c))))])
        for name, cells in untrained_rows(results).items():
            row = [list(spread(np.array(cells[c]))) if c in cells else ["", ""] for c in shown]
            writer.writerow([name, *(n for pair in row for n in pair)])
