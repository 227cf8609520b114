import numpy as np
import pytest

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.embedding_plot import plot_embedding, tsne


def test_far_clusters_stay_apart_and_a_seed_repeats_the_map():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], 12)
    x = rng.normal(size=(24, 6)) + 40.0 * labels[:, None]
    points = tsne(x)
    np.testing.assert_array_equal(points, tsne(x))
    distance = np.linalg.norm(points[:, None] - points, axis=-1)
    np.fill_diagonal(distance, np.inf)
    np.testing.assert_array_equal(labels[distance.argmin(1)], labels)


def test_a_map_needs_a_few_videos_and_bears_vectors_that_are_all_alike():
    with pytest.raises(StillmotionError, match="at least 4 videos, got 3"):
        tsne(np.ones((3, 2)))
    assert not tsne(np.ones((5, 2))).any()
    assert tsne(np.random.default_rng(0).normal(size=(4, 3))).shape == (4, 2)


def test_every_class_has_its_points_and_its_name():
    names = [f"class {i}" for i in range(8)]
    labels = np.arange(16) % 8
    figure = plot_embedding(np.random.default_rng(0).normal(size=(16, 2)), labels, names, title="run, static")
    marks = figure.axes[0].collections
    assert [len(m.get_offsets()) for m in marks] == [2] * 8
    assert [t.get_text() for t in figure.legends[0].get_texts()] == names
    looks = {(tuple(m.get_facecolor()[0]), len(m.get_paths()[0].vertices)) for m in marks}
    assert len(looks) == 8  # classes of the same colour have different markers


def test_maps_that_share_slots_colour_a_class_alike():
    points, labels = np.random.default_rng(0).normal(size=(4, 2)), np.array([0, 0, 1, 1])
    slots = {"kick": 0, "hug": 1}
    first, second = (
        plot_embedding(points, labels, names, color_index=slots) for names in (["kick", "hug"], ["hug", "kick"])
    )
    colours = [[m.get_facecolor()[0].tolist() for m in f.axes[0].collections] for f in (first, second)]
    assert colours[0] == colours[1][::-1]
