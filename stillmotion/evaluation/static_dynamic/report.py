"""Results of `static-dynamic evaluate` as text and as a page, in the layout of BOD-VCL's Table 2."""

from pathlib import Path

from matplotlib.figure import Figure

from stillmotion.evaluation.static_dynamic.evaluate import (
    MIN_CONCLUSIVE_VIDEOS,
    PIXEL_BASELINE,
    ProbeAccuracy,
    StaticDynamicReport,
    VersionSummary,
)
from stillmotion.report.charts import draw_accuracy_bars
from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Block, Section, Table, Text, best_cells, figure_block
from stillmotion.report.plot_style import TEXT_COLOR, new_axes
from stillmotion.utils.formatting import format_count, format_failed_videos

_TOP5_MIN_CLASSES = 5  # with so many classes or fewer, every video is correct in the top 5
_VERSION_DESCRIPTIONS = {
    "plain": "the original videos",
    "static": "one frame repeated: only appearance distinguishes classes",
    "dynamic": "noise moved by the videos' optical flow: only motion distinguishes classes",
}


def accuracy_table(report: StaticDynamicReport) -> Table:
    """Build Table 2: a row for each encoder and feature kind, and one for the majority class."""
    kinds = report.settings["feature_kinds"]
    header = ["encoder", *(f"{version} top-{k} (%)" for version in report.versions for k in (1, 5))]
    rows = []
    for name, by_version in report.accuracy.items():
        for kind in kinds:
            cells = []
            for version, summary in report.versions.items():
                cells += _accuracy_cells(by_version[version][kind], summary)
            rows.append([_row_name(name, kind, kinds), *cells])
    bold = best_cells(rows, columns=range(1, len(header)))
    baseline = [f"{100 * summary.chance_level:.1f}" for summary in report.versions.values()]
    rows.append(["majority class", *(cell for top1 in baseline for cell in (top1, "–"))])
    return Table(header, rows, _caption(report), bold)


def difference_table(report: StaticDynamicReport) -> Table | None:
    """Build a table of differences from the first encoder; None if there is only one encoder."""
    kinds, rows = report.settings["feature_kinds"], []
    for name, by_version in report.top1_difference.items():
        for kind in kinds:
            estimates = [by_version.get(version, {}).get(kind) for version in report.versions]
            cells = [e.format(digits=1, sign="+", scale=100) if e else "–" for e in estimates]
            rows.append([_row_name(name, kind, kinds), *cells])
    caption = "A difference whose interval excludes 0 is larger than the choice of test videos explains."
    return Table(["encoder", *(f"{v} (points)" for v in report.versions)], rows, caption) if rows else None


def single_frame_table(report: StaticDynamicReport) -> Table:
    """Build a table of the probes on single frames of the dynamic version."""
    rows = []
    for name, check in report.single_frame.items():
        network = "pixels, no network" if name == PIXEL_BASELINE else name
        at_chance = {True: "yes", False: "no", None: "too few videos"}[check.at_chance]
        cell = check.accuracy.top1.format(digits=1, scale=100)
        rows.append([network, cell, f"{100 * check.chance_level:.1f}", at_chance])
    return Table(["encoder", "top-1 (%)", "majority class (%)", "at chance"], rows)


def format_static_dynamic_report(report: StaticDynamicReport) -> list[str]:
    """Format the tables and the check of the dynamic version as lines of text."""
    lines = [f"{name}: {_format_size(summary)}" for name, summary in report.versions.items()]
    table, differences = accuracy_table(report), difference_table(report)
    lines += ["", *table.to_text(), table.caption]
    if differences is not None:
        first = next(iter(report.encoders))
        lines += ["", f"top-1 minus that of {first}, on the same videos:", *differences.to_text()]
    if report.single_frame:
        lines += ["", "single frames of the dynamic version:", *single_frame_table(report).to_text(), _verdict(report)]
    failed = format_failed_videos(report.failed)
    return lines + [""] * bool(failed) + failed


def write_static_dynamic_page(output_dir: str | Path, report: StaticDynamicReport) -> Path:
    """Write `report.html`.

    Args:
        output_dir: Folder to write to.
        report: Results.

    Returns:
        The page.
    """
    bars = figure_block({"top-1 accuracy of each encoder on each version": plot_static_dynamic(report)})
    sections = [Section("Accuracy on each version", [accuracy_table(report), bars])]
    differences = difference_table(report)
    if differences is not None:
        sections.append(Section(f"Top-1 minus that of {next(iter(report.encoders))}", [differences]))
    if report.single_frame:
        blocks: list[Block] = [Text(_verdict(report)), single_frame_table(report)]
        sections.append(Section("Check: can single frames of the dynamic set be classified?", blocks))
    versions = [
        [name, _VERSION_DESCRIPTIONS[name], _format_size(summary), summary.data]
        for name, summary in report.versions.items()
    ]
    sections.append(Section("Videos", [Table(["version", "content", "videos", "folder"], versions)]))
    encoders = [[name, spec] for name, spec in report.encoders.items()]
    sections.append(Section("Encoders", [Table(["name", "spec"], encoders)]))
    return write_page(Path(output_dir) / "report.html", "Static and dynamic evaluation", sections)


def plot_static_dynamic(report: StaticDynamicReport) -> Figure:
    """Plot the top-1 of each encoder on each version, with its interval and the majority class."""
    versions, kind = list(report.versions), report.settings["feature_kinds"][0]
    cells = {name: {v: by_version[v][kind].top1 for v in versions} for name, by_version in report.accuracy.items()}
    figure, axes = new_axes(width=max(6.4, 0.6 * len(cells) * len(versions)), height=2.8 + 0.12 * len(cells))
    means = {name: [{v: top1.value for v, top1 in by_version.items()}] for name, by_version in cells.items()}
    baselines = {version: summary.chance_level for version, summary in report.versions.items()}
    draw_accuracy_bars(axes, means, factors=versions, chance=baselines)
    labels = iter(axes.texts)
    for bars, by_version in zip(axes.containers, cells.values(), strict=True):
        for bar, version in zip(bars, versions, strict=True):
            x, top1 = bar.get_x() + bar.get_width() / 2, by_version[version]
            axes.vlines(x, top1.low, top1.high, color=TEXT_COLOR, linewidth=1.2)
            next(labels).xy = (x, top1.high)  # type: ignore[attr-defined]  # they are annotations
    return figure


def _accuracy_cells(accuracy: ProbeAccuracy, summary: VersionSummary) -> list[str]:
    top1, top5 = (estimate.format(digits=1, scale=100) for estimate in (accuracy.top1, accuracy.top5))
    return [top1, top5 if summary.num_classes > _TOP5_MIN_CLASSES else "–"]


def _row_name(name: str, kind: str, kinds: list[str]) -> str:
    return name if len(kinds) == 1 else f"{name}, {kind}"


def _verdict(report: StaticDynamicReport) -> str:
    checks, level = report.single_frame, f"{report.settings['confidence_level']:.0%}"
    num_videos = next(iter(checks.values())).accuracy.num_test_videos
    if any(check.at_chance is None for check in checks.values()):
        return (
            f"{format_count(num_videos, 'test video')} are too few to conclude whether single frames of the dynamic "
            f"version can be classified; use at least {MIN_CONCLUSIVE_VIDEOS}."
        )
    above = [name for name, check in checks.items() if not check.at_chance]
    if not above:
        highest = max(check.accuracy.top1.high for check in checks.values())
        return (
            f"No probe of the middle frame alone is measurably above the majority class ({level} intervals over "
            f"{num_videos} test videos, up to {highest:.0%}): accuracy on the dynamic version beyond that is due to "
            "motion."
        )
    return (
        f"The middle frame alone can be classified by {', '.join(above)} ({level} intervals): part of the accuracy on "
        "the dynamic version is not due to motion."
    )


def _caption(report: StaticDynamicReport) -> str:
    settings = report.settings
    has_few_classes = any(summary.num_classes <= _TOP5_MIN_CLASSES for summary in report.versions.values())
    return (
        f"Logistic regression on frozen features ({', '.join(settings['feature_kinds'])}), "
        f"{format_count(settings['num_clips'], 'clip')} per video; {settings['confidence_level']:.0%} Wilson intervals "
        "over test videos." + (" Top-5 is not shown for five classes or fewer." if has_few_classes else "")
    )


def _format_size(summary: VersionSummary) -> str:
    return (
        f"{summary.num_train_videos} training and {format_count(summary.num_test_videos, 'test video')}, "
        f"{summary.num_classes} classes ({summary.split_description})"
    )
