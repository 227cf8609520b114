import json

import numpy as np

from stillmotion.report.charts import plot_lines, running_mean
from stillmotion.training.report_sections import loss_curve_blocks, plot_health_curves, plot_loss_curves, plot_metric


def test_every_loss_part_of_any_run_has_a_figure(run, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    lines = [{"step": s, "loss/whole": 3.0 - s, "lr": 0.1} for s in range(1, 4)]
    (other / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    figures = plot_loss_curves({"split": run, "whole": other})
    assert set(figures) == {"prediction", "orthogonality", "static", "dynamic", "whole"}
    (line,) = figures["whole"].axes[0].lines  # too short for a running mean: one line with points
    assert line.get_ydata().tolist() == [2.0, 1.0, 0.0]
    assert (line.get_label(), line.get_marker()) == ("whole", ".")
    (block,) = loss_curve_blocks({"whole": other})
    assert block.caption == "Every part of the loss over the steps."


def test_a_long_run_is_plotted_as_logged_and_smoothed():
    points = [(step, 1.0 / step) for step in range(1, 101)]
    raw, smoothed = plot_lines({"run": {"loss": points}}, "loss", "loss").axes[0].lines
    assert raw.get_ydata().tolist() == [value for _, value in points]
    assert smoothed.get_label() == "run"


def test_a_run_that_logged_nothing_has_no_figure(tmp_path):
    assert plot_loss_curves({"new": tmp_path}) == {}
    assert plot_metric({"new": tmp_path}, "lr", title="rate") is None


def test_a_measure_of_health_has_a_line_for_each_half(run, tmp_path):
    figures = plot_health_curves(run)
    assert {
        "embedding_std",
        "effective_rank",
        "embedding_norm",
        "loss_grad_norm",
        "static_eigenvalue_fraction",
        "still_clip_ratio",
    } <= set(figures)
    assert [line.get_label() for line in figures["effective_rank"].axes[0].lines] == ["static", "dynamic"]
    assert len(figures["still_clip_ratio"].axes[0].lines) == 1
    assert plot_health_curves(tmp_path) == {}


def test_any_logged_number_has_a_curve(run):
    figure = plot_metric({"run": run}, "lr", title="rate")
    assert figure is not None
    assert figure.axes[0].get_title(loc="left") == "rate"
    assert len(figure.axes[0].lines) == 1


def test_smoothing_keeps_a_line_and_averages_noise():
    line = np.arange(200.0)
    np.testing.assert_allclose(running_mean(line)[5:-5], line[5:-5])
    noise = np.random.default_rng(0).standard_normal(400)
    assert running_mean(noise).std() < 0.4 * noise.std()
    assert running_mean(np.array([2.0])).tolist() == [2.0]
