"""What `retrieve` found of a run, as a section of its page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.evaluate.retrieve import RESULTS
from stillmotion.files import read_json
from stillmotion.report.blocks import Block, Section, Table, Text


def retrieval_sections(folder: str | Path) -> list[Section]:
    """R@1 and the scores beside it, by embedding; nothing of a run that was not asked."""
    file = Path(folder) / RESULTS
    if not file.exists():
        return []
    try:
        results = read_json(file, remedy=f"stillmotion retrieve --encoder {folder} --data … writes it again")
        blocks: list[Block] = [*_tables(results)]
    except StillmotionError as error:
        blocks = [Text(f"Not shown: {error}.")]
    return [Section("Retrieval", blocks)]


def _tables(results: Mapping[str, Any]) -> list[Table]:
    """One for each target, with the best embedding of each score stressed and a random order as the last row."""
    tables, scores = [], results["scores"]
    for target, chance in results["chance"].items():
        names = list(chance)
        rows = [[kind, *(f"{found[target][name]:.3f}" for name in names)] for kind, found in scores.items()]
        best = {(max(range(len(rows)), key=lambda i: float(rows[i][j])), j) for j in range(1, len(names) + 1)}
        rows.append(["random order", *(f"{chance[name]:.3f}" for name in names)])
        about = f"Whether the nearest share the {target}" + f" of {results['queries']} videos of {results['data']}"
        how = f"{results['protocol']}: {results['split']}; clips of each video: {results['clips']}"
        tables.append(Table(["nearest by", *names], rows, f"{about} ({how}).", frozenset(best)))
    return tables
