"""Results of `retrieve` as text, and as a section of a run's page."""

from collections.abc import Mapping
from pathlib import Path

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.common import NUM_LISTED_VIDEOS, file_name
from stillmotion.evaluation.retrieval.evaluate import RESULTS_FILE, RetrievalReport
from stillmotion.report.page_blocks import Block, Section, Table, Text, best_cells
from stillmotion.utils.files import read_json
from stillmotion.utils.formatting import format_count, format_failed_videos


def retrieval_tables(reports: Mapping[str, RetrievalReport]) -> list[Table]:
    """Build a table for each target, with the best row of each metric in bold and a random order as the last row.

    Args:
        reports: Results by the name of the encoder.

    Returns:
        The tables.
    """
    first = next(iter(reports.values()))
    tables = []
    for target, chance in first.chance.items():
        names = list(chance)
        rows = [
            [encoder, kind, *(f"{scores[target][name]:.3f}" for name in names)]
            for encoder, report in reports.items()
            for kind, scores in report.scores.items()
        ]
        bold = best_cells(rows, columns=range(2, 2 + len(names)))
        rows.append(["random order", "", *(f"{chance[name]:.3f}" for name in names)])
        caption = (
            f"Retrieval of videos with the same {target}: {format_count(first.queries, 'query', 'queries')} in "
            f"{first.data} ({_protocol(first)}; {format_count(first.num_clips, 'clip')} per video)."
        )
        tables.append(Table(["encoder", "features", *names], rows, caption, bold))
    return tables


def format_retrieval_reports(reports: Mapping[str, RetrievalReport]) -> list[str]:
    """Format results as lines of text: metrics, or for videos without labels the nearest neighbors of each.

    Args:
        reports: Results by the name of the encoder.

    Returns:
        The lines.
    """
    first = next(iter(reports.values()))
    lines = []
    if first.has_labels:
        counts = dict.fromkeys((first.reference_counts[0], first.reference_counts[-1]))
        lines.append(
            f"{format_count(first.queries, 'query', 'queries')}, {'–'.join(map(str, counts))} references "
            f"({_protocol(first)}); {format_count(first.num_clips, 'clip')} per video"
        )
        for target, table in zip(first.chance, retrieval_tables(reports), strict=True):
            lines += [f"{target}:"] * (len(first.chance) > 1) + table.to_text()
    for name, report in reports.items():
        for kind, neighbors in report.neighbors.items():
            lines.append(
                f"{format_count(report.queries, 'video')} of {report.data} without labels; nearest by {name}, {kind}, "
                "with cosines"
            )
            rows = [
                [file_name(video), "   ".join(f"{file_name(n)} {cosine:.2f}" for n, cosine in nearest)]
                for video, nearest in ((v, near[:NUM_LISTED_VIDEOS]) for v, near in neighbors.items())
            ]
            lines += Table(["video", "nearest"], rows).to_text()
    return lines + format_failed_videos({n: reason for r in reports.values() for n, reason in r.failed.items()})


def retrieval_sections(run_dir: str | Path) -> list[Section]:
    """Build the section of a run's page; none for a run that was not evaluated."""
    file = Path(run_dir) / RESULTS_FILE
    if not file.exists():
        return []
    try:
        results = read_json(file, hint=f"stillmotion retrieve {run_dir} --data … writes it again")
        blocks: list[Block] = [*retrieval_tables({Path(run_dir).name: RetrievalReport(**results)})]
    except (StillmotionError, TypeError) as error:
        blocks = [Text(f"Not shown: {error}.")]
    return [Section("Retrieval", blocks)]


def _protocol(report: RetrievalReport) -> str:
    candidates = f", {report.candidates} videos" if report.protocol == "leave-one-out" else ""
    return f"{report.protocol}{candidates}: {report.split_description}"
