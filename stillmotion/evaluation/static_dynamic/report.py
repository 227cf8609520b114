"""What `controlled evaluate` measured, as lines for a terminal and as a page, in the layout of BOD-VCL's Table 2."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from stillmotion.evaluation.static_dynamic.evaluate import PIXEL_BASELINE
from stillmotion.report.blocks import Block, Section, Table, Text, figure_block
from stillmotion.report.charts import draw_accuracy_bars
from stillmotion.report.page import write_page
from stillmotion.report.plot_style import TEXT_COLOR, new_axes
from stillmotion.utils.formatting import format_table

_TOPS = ("top1", "top5")
_TOP5_MIN_CLASSES = 5  # classes, up to which every answer is among the first five
_VERSION_DESCRIPTIONS = {
    "plain": "the videos as they are",
    "static": "one frame repeated: only appearance can tell classes apart",
    "dynamic": "noise moved by the videos' flow: only motion can",
}

Results = Mapping[str, Any]


def format_static_dynamic_results(results: Results) -> list[str]:
    """The table, the differences and the check of the dynamic set, for a terminal."""
    header, rows = _accuracy_rows(results)
    lines = [f"{name}: {_format_size(about)}" for name, about in results["versions"].items()]
    lines += ["", *format_table([header, *rows]), _note(results)]
    differences = _difference_rows(results)
    if differences:
        first = next(iter(results["encoders"]))
        lines += ["", f"top-1 less that of {first}, on the same videos:", *format_table(differences)]
    if results["single_frame"]:
        lines += [
            "",
            "single frames of the dynamic set:",
            *format_table(_single_frame_rows(results)),
            _verdict(results),
        ]
    if results["failed"]:
        lines += ["", f"{len(results['failed'])} unreadable videos were skipped:"]
        lines += [f"  {reason}" for reason in results["failed"].values()]
    return lines


def write_static_dynamic_page(output_dir: str | Path, results: Results) -> Path:
    """Write `report.html` into the folder."""
    header, rows = _accuracy_rows(results)
    encoders = len(results["encoders"]) * len(results["settings"]["feature_kinds"])
    table = Table(header, rows, _note(results), _best_cells(rows[:encoders]))
    sections = [
        Section("What each encoder knows of appearance and of motion", [table, _bars_block(results)]),
        Section("The videos", _video_blocks(results)),
    ]
    differences = _difference_rows(results)
    if differences:
        first = next(iter(results["encoders"]))
        told = "A difference whose interval leaves out 0 is more than the choice of test videos explains."
        sections.insert(1, Section(f"Top-1 less that of {first}", [Table(differences[0], differences[1:], told)]))
    if results["single_frame"]:
        check = _single_frame_rows(results)
        blocks: list[Block] = [Text(_verdict(results)), Table(check[0], check[1:])]
        sections.insert(-1, Section("Is appearance left in the dynamic videos?", blocks))
    sections.append(Section("Encoders", [_encoder_table(results)]))
    return write_page(Path(output_dir) / "report.html", "Appearance and motion, apart", sections)


def plot_static_dynamic(results: Results) -> Figure:
    """Top-1 of each encoder on each version, with its confidence interval and the share that guessing reaches."""
    versions, kind = list(results["versions"]), results["settings"]["feature_kinds"][0]
    cells = {name: {v: found[v][kind] for v in versions} for name, found in results["accuracy"].items()}
    figure, axes = new_axes(width=max(6.4, 0.6 * len(cells) * len(versions)), height=2.8 + 0.12 * len(cells))
    means = {name: [{v: cell["top1"] for v, cell in found.items()}] for name, found in cells.items()}
    guess = {v: max(about["chance"], about["majority"]) for v, about in results["versions"].items()}
    draw_accuracy_bars(axes, means, factors=versions, chance=guess)
    labels = iter(axes.texts)
    for bars, found in zip(axes.containers, cells.values(), strict=True):
        for bar, version in zip(bars, versions, strict=True):
            place, (low, high) = bar.get_x() + bar.get_width() / 2, found[version]["top1_interval"]
            axes.vlines(place, low, high, color=TEXT_COLOR, linewidth=1.2)
            next(labels).xy = (place, high)  # type: ignore[attr-defined]  # they are annotations
    return figure


def _accuracy_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of Table 2, with guessing as the last row."""
    header = ["encoder", *(f"{version} top-{top[-1]} (%)" for version in results["versions"] for top in _TOPS)]
    kinds = results["settings"]["feature_kinds"]
    rows = []
    for name, found in results["accuracy"].items():
        for kind in kinds:
            cells = [
                _cell(found[version][kind], top, about["classes"])
                for version, about in results["versions"].items()
                for top in _TOPS
            ]
            rows.append([name if len(kinds) == 1 else f"{name}, {kind}", *cells])
    guess = [f"{100 * max(a['chance'], a['majority']):.1f}" for a in results["versions"].values()]
    rows.append(["guessing", *(cell for top in guess for cell in (top, "–"))])
    return header, rows


def _cell(found: Mapping[str, Any], top: str, classes: int) -> str:
    if top == "top5" and classes <= _TOP5_MIN_CLASSES:
        return "–"
    return _with_interval(found[top], found[f"{top}_interval"])


def _with_interval(value: float, bounds: Sequence[float], *, sign: str = "") -> str:
    low, high = bounds
    return f"{100 * value:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def _best_cells(rows: Sequence[Sequence[str]]) -> frozenset[tuple[int, int]]:
    """The largest cell of each column, where there are several rows."""
    if len(rows) < 2:
        return frozenset()
    columns = [j for j in range(1, len(rows[0])) if rows[0][j] != "–"]
    return frozenset((max(range(len(rows)), key=lambda i: float(rows[i][j].split()[0])), j) for j in columns)


def _difference_rows(results: Results) -> list[list[str]]:
    """A header and one row for each encoder but the first, and kind of feature; empty where there is one encoder."""
    versions, kinds = list(results["versions"]), results["settings"]["feature_kinds"]
    rows = []
    for name, found in results["top1_difference"].items():
        for kind in kinds:
            cells = [found.get(v, {}).get(kind) for v in versions]
            texts = [_with_interval(c["top1"], c["interval"], sign="+") if c else "–" for c in cells]
            rows.append([name if len(kinds) == 1 else f"{name}, {kind}", *texts])
    return [["encoder", *(f"{version} (points)" for version in versions)], *rows] if rows else []


def _single_frame_rows(results: Results) -> list[list[str]]:
    rows = [["frame seen by", "top-1 (%)", "guessing (%)", "at chance"]]
    for name, found in results["single_frame"].items():
        seen = "its pixels, no network" if name == PIXEL_BASELINE else name
        told = "yes" if found["at_chance"] else "no"
        rows.append(
            [seen, _with_interval(found["top1"], found["top1_interval"]), f"{100 * found['chance_level']:.1f}", told]
        )
    return rows


def _verdict(results: Results) -> str:
    failed = [name for name, found in results["single_frame"].items() if not found["at_chance"]]
    level = f"{results['settings']['confidence_level']:.0%}"
    if not failed:
        highest = max(found["top1_interval"][1] for found in results["single_frame"].values())
        videos = results["versions"]["dynamic"]["test_videos"]
        return (
            f"No probe on the middle frame alone is measurably above guessing ({level} intervals over {videos} test "
            f"videos, which reach {highest:.0%} at most): what encoders read off the dynamic videos beyond that is "
            "motion."
        )
    return (
        f"The middle frame alone tells classes apart for {', '.join(failed)} ({level} intervals): a part of what "
        "encoders read off the dynamic videos is not motion."
    )


def _note(results: Results) -> str:
    settings = results["settings"]
    few = any(about["classes"] <= _TOP5_MIN_CLASSES for about in results["versions"].values())
    return (
        f"Logistic regression on frozen features ({', '.join(settings['feature_kinds'])}), clips of each video: "
        f"{settings['num_clips']}; {settings['confidence_level']:.0%} intervals of {settings['n_resamples']} resamples of the test "
        "videos. Guessing is the share of the commonest class."
        + (" Top-5 says nothing of five classes or fewer." if few else "")
    )


def _bars_block(results: Results) -> Block:
    return figure_block({"top-1 accuracy of each encoder on each version": plot_static_dynamic(results)})


def _video_blocks(results: Results) -> list[Block]:
    rows = [
        [name, _VERSION_DESCRIPTIONS[name], _format_size(about), about["data"]]
        for name, about in results["versions"].items()
    ]
    return [Table(["version", "what it shows", "videos", "folder"], rows)]


def _format_size(about: Mapping[str, Any]) -> str:
    return (
        f"{about['train_videos']} training and {about['test_videos']} test videos, {about['classes']} classes "
        f"({about['split_description']})"
    )


def _encoder_table(results: Results) -> Table:
    return Table(["name", "what was loaded"], [[name, text] for name, text in results["encoders"].items()])
