import numpy as np
import pytest

from stillmotion.studies.sweep.plots import plot_accuracy_vs_time, plot_sweep

ROWS = [[0.4, 0.6], [0.7, 0.9], [0.2, 0.2]]


def test_numbers_are_joined_in_their_order_with_the_deviation_as_a_band():
    axes = plot_sweep(["0.3", "0.1", "0.2"], {"light": ROWS}, untrained={"light": 0.45}, axis_name="radius").axes[0]
    line = axes.lines[0]
    np.testing.assert_allclose(line.get_xdata(), [0.1, 0.2, 0.3])
    np.testing.assert_allclose(line.get_ydata(), [0.8, 0.2, 0.5])
    band = axes.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(0.8 + np.std([0.7, 0.9], ddof=1))
    dashed = [curve for curve in axes.lines if curve.get_linestyle() == "--"]
    assert dashed[0].get_ydata()[0] == 0.45
    assert axes.get_xscale() == "linear"
    assert axes.get_xlabel() == "radius"


def test_values_over_several_orders_get_a_logarithmic_axis_unless_one_is_zero():
    assert plot_sweep(["1e-4", "1e-3", "1"], {"light": ROWS}, untrained={}).axes[0].get_xscale() == "log"
    assert plot_sweep(["0", "1e-3", "1"], {"light": ROWS}, untrained={}).axes[0].get_xscale() == "linear"


def test_names_are_marked_side_by_side_and_not_joined():
    axes = plot_sweep(["plain", "split", "both"], {"light": ROWS, "motion": ROWS}, untrained={}).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["plain", "split", "both"]
    light, motion = (curve for curve in axes.lines if curve.get_marker() == "o")
    np.testing.assert_allclose(light.get_ydata(), [0.5, 0.8, 0.2])
    assert (light.get_xdata() < motion.get_xdata()).all()
    assert light.get_linestyle() == "None"


def test_one_seed_is_drawn_without_a_spread():
    axes = plot_sweep(["1", "2"], {"light": [[0.4], [0.5]]}, untrained={}).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.4, 0.5])


def test_cost_is_on_the_horizontal_axis():
    axes = plot_accuracy_vs_time(["plain", "split"], ROWS[:2], [0.1, 0.3]).axes[0]
    points = [(curve.get_xdata()[0], curve.get_ydata()[0]) for curve in axes.lines if curve.get_marker() == "o"]
    np.testing.assert_allclose(points, [(0.1, 0.5), (0.3, 0.8)])
    assert axes.get_xlim()[0] == 0
