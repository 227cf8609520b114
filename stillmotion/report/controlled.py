"""What `controlled evaluate` measured, as lines for a terminal and as a page, in the layout of BOD-VCL's Table 2."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from stillmotion.evaluate.controlled import PIXELS
from stillmotion.explain.bars import draw_bars
from stillmotion.explain.figure import INK, new_axes
from stillmotion.report.blocks import Block, Section, Table, Text, figures
from stillmotion.report.page import write_page
from stillmotion.report.text import aligned

_TOPS = ("top1", "top5")
_FEW = 5  # classes, up to which every answer is among the first five
_MEANING = {
    "plain": "the videos as they are",
    "static": "one frame repeated: only appearance can tell classes apart",
    "dynamic": "noise moved by the videos' flow: only motion can",
}

Results = Mapping[str, Any]


def controlled_lines(results: Results) -> list[str]:
    """The table, the differences and the check of the dynamic set, for a terminal."""
    header, rows = _accuracies(results)
    lines = [f"{name}: {_size(about)}" for name, about in results["sets"].items()]
    lines += ["", *aligned([header, *rows]), _note(results)]
    differences = _difference_rows(results)
    if differences:
        first = next(iter(results["encoders"]))
        lines += ["", f"top-1 less that of {first}, on the same videos:", *aligned(differences)]
    if results["single_frame"]:
        lines += ["", "single frames of the dynamic set:", *aligned(_single_rows(results)), _verdict(results)]
    if results["broken"]:
        lines += ["", f"{len(results['broken'])} unreadable videos were skipped:"]
        lines += [f"  {reason}" for reason in results["broken"].values()]
    return lines


def controlled_report(folder: str | Path, results: Results) -> Path:
    """Write `report.html` into the folder."""
    header, rows = _accuracies(results)
    encoders = len(results["encoders"]) * len(results["settings"]["kinds"])
    table = Table(header, rows, _note(results), _best(rows[:encoders]))
    sections = [
        Section("What each encoder knows of appearance and of motion", [table, _bars(results)]),
        Section("The videos", _videos(results)),
    ]
    differences = _difference_rows(results)
    if differences:
        first = next(iter(results["encoders"]))
        told = "A difference whose interval leaves out 0 is more than the choice of test videos explains."
        sections.insert(1, Section(f"Top-1 less that of {first}", [Table(differences[0], differences[1:], told)]))
    if results["single_frame"]:
        check = _single_rows(results)
        blocks: list[Block] = [Text(_verdict(results)), Table(check[0], check[1:])]
        sections.insert(-1, Section("Is appearance left in the dynamic videos?", blocks))
    sections.append(Section("Encoders", [_encoders(results)]))
    return write_page(Path(folder) / "report.html", "Appearance and motion, apart", sections)


def controlled_bars(results: Results) -> Figure:
    """Top-1 of each encoder on each version, with its confidence interval and the share that guessing reaches."""
    versions, kind = list(results["sets"]), results["settings"]["kinds"][0]
    cells = {name: {v: found[v][kind] for v in versions} for name, found in results["accuracy"].items()}
    figure, axes = new_axes(width=max(6.4, 0.6 * len(cells) * len(versions)), height=2.8 + 0.12 * len(cells))
    means = {name: [{v: cell["top1"] for v, cell in found.items()}] for name, found in cells.items()}
    guess = {v: max(about["chance"], about["majority"]) for v, about in results["sets"].items()}
    draw_bars(axes, means, factors=versions, chance=guess)
    labels = iter(axes.texts)
    for bars, found in zip(axes.containers, cells.values(), strict=True):
        for bar, version in zip(bars, versions, strict=True):
            place, (low, high) = bar.get_x() + bar.get_width() / 2, found[version]["top1_interval"]
            axes.vlines(place, low, high, color=INK, linewidth=1.2)
            next(labels).xy = (place, high)  # type: ignore[attr-defined]  # they are annotations
    return figure


def _accuracies(results: Results) -> tuple[list[str], list[list[str]]]:
    """The header and the rows of Table 2, with guessing as the last row."""
    header = ["encoder", *(f"{version} top-{top[-1]} (%)" for version in results["sets"] for top in _TOPS)]
    kinds = results["settings"]["kinds"]
    rows = []
    for name, found in results["accuracy"].items():
        for kind in kinds:
            cells = [
                _cell(found[version][kind], top, about["classes"])
                for version, about in results["sets"].items()
                for top in _TOPS
            ]
            rows.append([name if len(kinds) == 1 else f"{name}, {kind}", *cells])
    guess = [f"{100 * max(a['chance'], a['majority']):.1f}" for a in results["sets"].values()]
    rows.append(["guessing", *(cell for top in guess for cell in (top, "–"))])
    return header, rows


def _cell(found: Mapping[str, Any], top: str, classes: int) -> str:
    if top == "top5" and classes <= _FEW:
        return "–"
    return _with_interval(found[top], found[f"{top}_interval"])


def _with_interval(value: float, bounds: Sequence[float], *, sign: str = "") -> str:
    low, high = bounds
    return f"{100 * value:{sign}.1f} [{100 * low:{sign}.1f}, {100 * high:{sign}.1f}]"


def _best(rows: Sequence[Sequence[str]]) -> frozenset[tuple[int, int]]:
    """The largest cell of each column, where there are several rows."""
    if len(rows) < 2:
        return frozenset()
    columns = [j for j in range(1, len(rows[0])) if rows[0][j] != "–"]
    return frozenset((max(range(len(rows)), key=lambda i: float(rows[i][j].split()[0])), j) for j in columns)


def _difference_rows(results: Results) -> list[list[str]]:
    """A header and one row for each encoder but the first, and kind of feature; empty where there is one encoder."""
    versions, kinds = list(results["sets"]), results["settings"]["kinds"]
    rows = []
    for name, found in results["difference"].items():
        for kind in kinds:
            cells = [found.get(v, {}).get(kind) for v in versions]
            texts = [_with_interval(c["top1"], c["interval"], sign="+") if c else "–" for c in cells]
            rows.append([name if len(kinds) == 1 else f"{name}, {kind}", *texts])
    return [["encoder", *(f"{version} (points)" for version in versions)], *rows] if rows else []


def _single_rows(results: Results) -> list[list[str]]:
    rows = [["frame seen by", "top-1 (%)", "guessing (%)", "at chance"]]
    for name, found in results["single_frame"].items():
        seen = "its pixels, no network" if name == PIXELS else name
        told = "yes" if found["at_chance"] else "no"
        rows.append([seen, _with_interval(found["top1"], found["top1_interval"]), f"{100 * found['guess']:.1f}", told])
    return rows


def _verdict(results: Results) -> str:
    failed = [name for name, found in results["single_frame"].items() if not found["at_chance"]]
    level = f"{results['settings']['level']:.0%}"
    if not failed:
        highest = max(found["top1_interval"][1] for found in results["single_frame"].values())
        videos = results["sets"]["dynamic"]["test_videos"]
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
    few = any(about["classes"] <= _FEW for about in results["sets"].values())
    return (
        f"Logistic regression on frozen features ({', '.join(settings['kinds'])}), clips of each video: "
        f"{settings['clips']}; {settings['level']:.0%} intervals of {settings['resamples']} resamples of the test "
        "videos. Guessing is the share of the commonest class."
        + (" Top-5 says nothing of five classes or fewer." if few else "")
    )


def _bars(results: Results) -> Block:
    return figures({"top-1 accuracy of each encoder on each version": controlled_bars(results)})


def _videos(results: Results) -> list[Block]:
    rows = [[name, _MEANING[name], _size(about), about["data"]] for name, about in results["sets"].items()]
    return [Table(["version", "what it shows", "videos", "folder"], rows)]


def _size(about: Mapping[str, Any]) -> str:
    return (
        f"{about['train_videos']} training and {about['test_videos']} test videos, {about['classes']} classes "
        f"({about['split']})"
    )


def _encoders(results: Results) -> Table:
    return Table(["name", "what was loaded"], [[name, text] for name, text in results["encoders"].items()])
