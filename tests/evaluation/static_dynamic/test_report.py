from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import LineCollection

from stillmotion.evaluation.metrics.confidence_intervals import Estimate
from stillmotion.evaluation.static_dynamic.evaluate import (
    ProbeAccuracy,
    SingleFrameCheck,
    StaticDynamicReport,
    VersionSummary,
)
from stillmotion.evaluation.static_dynamic.report import (
    accuracy_table,
    format_static_dynamic_report,
    plot_static_dynamic,
    write_static_dynamic_page,
)


def accuracy(top1, top5=0.9):
    return ProbeAccuracy(Estimate(top1, top1 - 0.05, top1 + 0.04), Estimate(top5, top5 - 0.01, top5 + 0.01), 100, 1.0)


def version(num_classes):
    return VersionSummary("somewhere", "its own", 200, 100, num_classes, 1 / num_classes, 0.3)


@pytest.fixture
def report():
    return StaticDynamicReport(
        encoders={"I3D": "i3d:w.safetensors", "BOD-VCL": "runs/bod"},
        versions={"static": version(10), "dynamic": version(4)},
        accuracy={
            "I3D": {"static": {"whole": accuracy(0.7)}, "dynamic": {"whole": accuracy(0.35)}},
            "BOD-VCL": {"static": {"whole": accuracy(0.6)}, "dynamic": {"whole": accuracy(0.4)}},
        },
        top1_difference={"BOD-VCL": {"static": {"whole": Estimate(-0.1, -0.2, 0.01)}}},
        single_frame={
            "pixels": SingleFrameCheck(accuracy(0.3), 0.3, True),
            "I3D": SingleFrameCheck(accuracy(0.5), 0.3, False),
        },
        settings={"num_clips": 4, "feature_kinds": ["whole"], "confidence_level": 0.95, "n_resamples": 2000, "seed": 0},
        failed={"a.mp4": "a.mp4: torn"},
    )


def test_lines_have_the_layout_of_table_2(report):
    lines = format_static_dynamic_report(report)
    text = "\n".join(lines)
    header = next(line for line in lines if "static top-1" in line)
    assert [word.strip() for word in header.removeprefix("encoder").split("(%)") if word.strip()] == [
        "static top-1",
        "static top-5",
        "dynamic top-1",
        "dynamic top-5",
    ]
    row = next(line for line in lines if line.startswith("I3D"))
    assert row.split()[1:] == ["70.0", "[65.0,", "74.0]", "90.0", "[89.0,", "91.0]", "35.0", "[30.0,", "39.0]", "–"]
    assert next(line for line in lines if line.startswith("majority")).split()[2:] == ["30.0", "–", "30.0", "–"]
    assert "-10.0 [-20.0, +1.0]" in text
    assert "The middle frame alone can be classified by I3D (95% intervals)" in text
    assert lines[-1] == "  a.mp4: torn"


@pytest.mark.parametrize(
    ("at_chance", "verdict"),
    [
        (True, "No probe of the middle frame alone is measurably above"),
        (None, "100 test videos are too few to conclude"),
    ],
)
def test_the_verdict_on_single_frames(report, at_chance, verdict):
    report.single_frame["I3D"] = replace(report.single_frame["I3D"], at_chance=at_chance)
    assert any(verdict in line for line in format_static_dynamic_report(report))


def test_bars_are_the_accuracies_and_lines_their_intervals(report):
    axes = plot_static_dynamic(report).axes[0]
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[0.7, 0.35], [0.6, 0.4]]
    spans = [segment[:, 1] for lines in axes.findobj(LineCollection) for segment in lines.get_segments()]
    np.testing.assert_allclose(spans, [(0.65, 0.74), (0.3, 0.39), (0.55, 0.64), (0.35, 0.44)])


def test_the_best_cells_are_bold_and_all_of_equal_ones(report, tmp_path):
    assert accuracy_table(report).bold_cells == {(0, 1), (0, 2), (1, 2), (1, 3)}  # both have the same top-5
    html = write_static_dynamic_page(tmp_path, report).read_text()
    for title in ("Accuracy on each version", "Top-1 minus that of I3D", "Check: can single", "Videos", "Encoders"):
        assert f"<h2>{title}" in html
    assert html.count("<svg") == 1
    assert "http" not in html
