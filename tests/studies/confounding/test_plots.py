import numpy as np

from stillmotion.data.synthetic.factors import FACTOR_VALUES, SyntheticConfig
from stillmotion.studies.confounding.plots import plot_accuracy, plot_factor_examples, plot_gradient_norms


def test_accuracy_lines_are_means_over_seeds_and_bands_their_range():
    table = {"color": np.array([[0.5, 0.9], [0.7, 1.0]]), "shape": np.array([[0.2, 0.2], [0.4, 0.4]])}
    (axes,) = plot_accuracy([0, 10], table, highlighted=["color"]).axes
    color, shape = axes.lines
    np.testing.assert_allclose(color.get_ydata(), [0.6, 0.95])
    assert color.get_xdata().tolist() == [0, 10]
    assert (color.get_label(), shape.get_label()) == ("color", "shape")
    assert color.get_linewidth() > shape.get_linewidth()
    heights = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0.5, 1.0)


def test_gradient_norms_have_a_line_for_each_stream():
    norms = {"static": np.full((3, 5), 2.0), "dynamic": np.arange(15.0).reshape(3, 5)}
    (axes,) = plot_gradient_norms(norms, title="(a)").axes
    static, dynamic = axes.lines
    assert static.get_ydata().tolist() == [2.0] * 5
    assert dynamic.get_ydata().tolist() == [5, 6, 7, 8, 9]
    assert dynamic.get_xdata().tolist() == [1, 2, 3, 4, 5]
    assert "θ_M" in dynamic.get_label()


def test_every_value_of_every_factor_is_drawn():
    classes = {f: names[:2] for f, names in FACTOR_VALUES.items()} | {"shape": FACTOR_VALUES["shape"][:3]}
    figure = plot_factor_examples(SyntheticConfig(), classes, num_frames=4)
    strips = [axes.images[0].get_array() for axes in figure.axes if axes.images]
    assert len(strips) == 9
    assert {strip.shape for strip in strips} == {(32, 128, 3)}
    assert {axes.get_ylabel() for axes in figure.axes} >= {"red", "green", "square", "darkening", "vertical"}
