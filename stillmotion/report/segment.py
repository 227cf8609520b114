"""The page of action localisation."""

from pathlib import Path
from typing import Any

from stillmotion.explain.figure import save_picture
from stillmotion.explain.timeline import timelines
from stillmotion.files import made
from stillmotion.report.blocks import Section, Table, figures
from stillmotion.report.page import broken_blocks, curve_blocks, write_page
from stillmotion.report.retrieval import retrieval_sections
from stillmotion.tasks.segment import Answers, read_answers

SCORES = {"edit": "Edit", "accuracy": "accuracy", "f1@10": "F1@10", "f1@25": "F1@25", "f1@50": "F1@50"}
_CAPTION = "Evenly chosen test videos. A colour is an action; each video has the length of the page."


def segment_report(folder: str | Path, answers: Answers | None = None) -> Path:
    """Write `report.html`, and the timelines as `timelines.png`; answers: those of the run, where they are at hand."""
    answers = answers or read_answers(folder)
    results = answers.results
    drawn = timelines(answers.predicted, answers.truth, answers.actions)
    save_picture(drawn, made(folder, mark=True) / "timelines.png", dpi=150)
    sections = [
        Section("Scores", [_scores(results), *broken_blocks(results)]),
        Section("Prediction and truth", [figures({"timelines of test videos": drawn}, caption=_CAPTION)]),
        Section("Actions", [_recall(results)]),
        Section("Losses", curve_blocks({results["head"]: Path(folder)})),
        *retrieval_sections(folder),
    ]
    return write_page(Path(folder) / "report.html", f"Action localisation: {Path(folder).name}", sections)


def score_lines(results: dict[str, Any]) -> list[str]:
    """The scores as text, beside those of the commonest action."""
    width = max(len(row[0]) for row in _rows(results))
    heads = "".join(f"{head:>10}" for head in SCORES.values())
    return [f"{'':<{width}}{heads}"] + [
        f"{name:<{width}}" + "".join(f"{value:>10}" for value in values) for name, *values in _rows(results)
    ]


def _rows(results: dict[str, Any]) -> list[list[str]]:
    named = {results["head"]: results["scores"], f"always {results['commonest']['action']}": results["commonest"]}
    return [[name, *(f"{found[key]:.1f}" for key in SCORES)] for name, found in named.items()]


def _scores(results: dict[str, Any]) -> Table:
    caption = (
        f"In percent, on {results['test_videos']} test videos of split {results['split']} of {results['data']}; head "
        f"{results['head']} trained on features of {results['encoder']} of {results['train_videos']} videos."
    )
    return Table(["", *SCORES.values()], _rows(results), caption)


def _recall(results: dict[str, Any]) -> Table:
    rows = [[name, f"{share:.1f}"] for name, share in results["recall"].items()]
    return Table(["action", "frames told, %"], rows, "Of the frames of each action, how many were told as such.")
