"""What `retrieve` found of a run, as a section of its page."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.retrieval.evaluate import RESULTS_FILE
from stillmotion.report.blocks import Block, Section, Table, Text
from stillmotion.utils.files import read_json


def retrieval_sections(run_dir: str | Path) -> list[Section]:
    """R@1 and the scores beside it, by embedding; nothing of a run that was not asked."""
    file = Path(run_dir) / RESULTS_FILE
    if not file.exists():
        return []
    try:
        results = read_json(file, hint=f"stillmotion retrieve --encoder {run_dir} --data … writes it again")
        blocks: list[Block] = [*_retrieval_tables(results)]
    except StillmotionError as error:
        blocks = [Text(f"Not shown: {error}.")]
    return [Section("Retrieval", blocks)]


def _retrieval_tables(results: Mapping[str, Any]) -> list[Table]:
    """One for each target, with the best embedding of each score stressed and a random order as the last row."""
    tables, scores = [], results["scores"]
    for target, chance in results["chance"].items():
        names = list(chance)
        rows = [[kind, *(f"{found[target][name]:.3f}" for name in names)] for kind, found in scores.items()]
        best = {(max(range(len(rows)), key=lambda i: float(rows[i][j])), j) for j in range(1, len(names) + 1)}
        rows.append(["random order", *(f"{chance[name]:.3f}" for name in names)])
        about = f"Whether the nearest share the {target}" + f" of {results['queries']} videos of {results['data']}"
        how = f"{results['protocol']}: {results['split_description']}; clips of each video: {results['num_clips']}"
        tables.append(Table(["nearest by", *names], rows, f"{about} ({how}).", frozenset(best)))
    return tables
