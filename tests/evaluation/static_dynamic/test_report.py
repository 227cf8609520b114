import numpy as np
import pytest
from matplotlib.collections import LineCollection

from stillmotion.evaluation.static_dynamic.report import (
    format_static_dynamic_results,
    plot_static_dynamic,
    write_static_dynamic_page,
)


def cell(top1, top5=0.9):
    return {
        "top1": top1,
        "top1_interval": [top1 - 0.05, top1 + 0.04],
        "top5": top5,
        "top5_interval": [top5 - 0.01, top5 + 0.01],
        "test_videos": 100,
        "best_c": 1.0,
    }


def about(classes):
    sizes = {"train_videos": 200, "test_videos": 100, "classes": classes, "chance": 1 / classes, "majority": 0.3}
    return {"data": "somewhere", "split_description": "its own", **sizes}


@pytest.fixture
def results():
    accuracy = {
        "I3D": {"static": {"whole": cell(0.7)}, "dynamic": {"whole": cell(0.35)}},
        "BOD-VCL": {"static": {"whole": cell(0.6)}, "dynamic": {"whole": cell(0.4)}},
    }
    gap = {"whole": {"top1": -0.1, "interval": [-0.2, 0.01]}}
    return {
        "encoders": {"I3D": "i3d:w.safetensors", "BOD-VCL": "runs/bod"},
        "versions": {"static": about(10), "dynamic": about(4)},
        "accuracy": accuracy,
        "top1_difference": {"BOD-VCL": {"static": gap}},
        "single_frame": {
            "pixels": cell(0.3) | {"chance_level": 0.3, "at_chance": True},
            "I3D": cell(0.5) | {"chance_level": 0.3, "at_chance": False},
        },
        "settings": {
            "num_clips": 4,
            "feature_kinds": ["whole"],
            "confidence_level": 0.95,
            "n_resamples": 2000,
            "seed": 0,
        },
        "failed": {"a.mp4": "a.mp4: torn"},
    }


def test_lines_have_the_layout_of_table_2(results):
    lines = format_static_dynamic_results(results)
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
    assert next(line for line in lines if line.startswith("guessing")).split() == ["guessing", "30.0", "–", "30.0", "–"]
    assert "-10.0 [-20.0, +1.0]" in text
    assert "The middle frame alone tells classes apart for I3D (95% intervals)" in text
    assert lines[-1] == "  a.mp4: torn"


def test_a_clean_dynamic_set_is_said_to_be_clean(results):
    results["single_frame"]["I3D"]["at_chance"] = True
    assert any(
        "No probe on the middle frame alone is measurably above guessing" in line
        for line in format_static_dynamic_results(results)
    )


def test_bars_are_the_accuracies_and_lines_their_intervals(results):
    axes = plot_static_dynamic(results).axes[0]
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights == [[0.7, 0.35], [0.6, 0.4]]
    spans = [segment[:, 1] for lines in axes.findobj(LineCollection) for segment in lines.get_segments()]
    np.testing.assert_allclose(spans, [(0.65, 0.74), (0.3, 0.39), (0.55, 0.64), (0.35, 0.44)])


def test_the_page_stresses_the_best_of_each_column(results, tmp_path):
    html = write_static_dynamic_page(tmp_path, results).read_text()
    for title in ("What each encoder knows", "Top-1 less that of I3D", "Is appearance left", "The videos", "Encoders"):
        assert f"<h2>{title}" in html
    assert html.count("<svg") == 1
    assert "http" not in html
