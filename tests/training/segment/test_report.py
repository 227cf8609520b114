import numpy as np
from matplotlib.colors import to_hex

from stillmotion.report.plot_style import PALETTE
from stillmotion.training.segment.report import plot_timelines


def bars(figure):
    """Return (start, length, top, colour) of each bar."""
    result = []
    for bar in figure.axes[0].collections:
        (x0, y0), (x1, _) = bar.get_datalim(figure.axes[0].transData).get_points()
        result.append((round(x0, 3), round(x1 - x0, 3), round(y0, 3), to_hex(bar.get_facecolor()[0])))
    return result


def test_a_bar_is_a_segment_and_prediction_stands_above_truth():
    truth, predictions = {"a": np.array([0, 0, 1, 1])}, {"a": np.array([0, 1, 1, 1])}
    truth_bars, prediction_bars = (
        bars(plot_timelines(predictions, truth, ["x", "y"]))[:2],
        bars(plot_timelines(predictions, truth, ["x", "y"]))[2:],
    )
    assert [bar[:2] for bar in truth_bars] == [(0.0, 0.25), (0.25, 0.75)]
    assert [bar[:2] for bar in prediction_bars] == [(0.0, 0.5), (0.5, 0.5)]
    assert truth_bars[0][2] < prediction_bars[0][2]
    assert [bar[3] for bar in truth_bars] == [bar[3] for bar in prediction_bars] == [*PALETTE[:2]]


def test_the_legend_names_the_actions_that_are_seen():
    labels = {"a": np.array([0, 2, 2]), "b": np.array([2, 2])}
    figure = plot_timelines(labels, labels, ["x", "y", "z"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["x", "z"]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["a", "b"]


def test_many_videos_are_thinned_and_many_actions_differ_in_colour():
    labels = {str(i): np.arange(40) for i in range(30)}
    figure = plot_timelines(labels, labels, [str(i) for i in range(40)], max_videos=5)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["0", "7", "14", "22", "29"]
    assert len({bar[3] for bar in bars(figure)}) == 40
