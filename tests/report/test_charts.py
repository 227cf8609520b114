import pytest
from matplotlib.patches import Rectangle

from stillmotion.report.charts import plot_accuracy_bars

CHANCE = {"color": 0.25, "light": 0.5}


def test_bars_are_means_over_seeds_and_chance_is_drawn_for_each_factor():
    methods = {
        "plain": [{"color": 0.8, "light": 0.5}, {"color": 0.9, "light": 0.6}],
        "untrained": [{"color": 0.3, "light": 0.4}],
    }
    axes = plot_accuracy_bars(methods, factors=["color", "light"], chance=CHANCE).axes[0]
    heights = [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]
    assert heights == pytest.approx([0.85, 0.55, 0.3, 0.4])
    dashed = [line.get_ydata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [0.25, 0.5]
    names = {text.get_text() for text in axes.get_legend().get_texts()}
    assert names == {"plain", "untrained", "chance"}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["color", "light"]
