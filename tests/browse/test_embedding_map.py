"""Places and groups that are found without labels."""

import numpy as np
import pytest

from stillmotion.browse.embedding_map import kmeans_groups, layout_2d, pca_reduce
from stillmotion.browse.group_labels import GroupLabels


def clouds(count, *, each=20, seed=0):
    """Vectors about so many centres that are far apart, and the centre of each."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(count), each)
    return np.eye(16)[of] + 0.08 * rng.standard_normal((len(of), 16)), of


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_groups_are_the_clouds_that_are_there(count):
    vectors, of = clouds(count)
    found = kmeans_groups(pca_reduce(vectors))
    assert len(np.unique(found)) == count
    assert all(len(np.unique(found[of == cloud])) == 1 for cloud in range(count))


def test_the_largest_group_comes_first():
    vectors, _ = clouds(3)
    vectors = vectors[np.r_[0:5, 20:40, 40:52]]
    assert np.bincount(kmeans_groups(pca_reduce(vectors))).tolist() == [20, 12, 5]


def test_vectors_that_are_all_alike_are_one_group_on_one_spot():
    vectors = np.ones((30, 8))
    assert kmeans_groups(pca_reduce(vectors)).tolist() == [0] * 30
    assert np.isfinite(layout_2d(pca_reduce(vectors))).all()


def test_vectors_without_channels_have_places():
    assert layout_2d(pca_reduce(np.zeros((5, 0)))).shape == (5, 2)


@pytest.mark.parametrize("most", [2000, 60])  # the latter are fewer than there are
def test_near_vectors_stay_near_on_the_map_and_no_two_lie_on_each_other(most):
    vectors, of = clouds(3, each=40)
    places = layout_2d(pca_reduce(vectors), max_tsne_points=most)
    assert places.min() >= -1e-9
    assert places.max() <= 1 + 1e-9
    far = np.linalg.norm(places[:, None] - places[None], axis=-1)
    np.fill_diagonal(far, np.inf)
    assert (of[far.argmin(1)] == of).mean() > 0.98
    assert far.min() > 0.1 / np.sqrt(len(places))


def test_a_map_is_the_same_each_time():
    vectors, _ = clouds(3)
    np.testing.assert_array_equal(layout_2d(pca_reduce(vectors)), layout_2d(pca_reduce(vectors)))


def test_a_name_stays_with_its_moments_when_groups_are_found_anew(tmp_path):
    names = GroupLabels(tmp_path)
    names.set_label("appearance", [["a", "b", "c"], ["d", "e"]], 0, "first")
    names.set_label("appearance", [["a", "b", "c"], ["d", "e"]], 1, "second")
    assert names.labels_for("appearance", [["d", "e", "f"], ["a", "b", "x"], ["y"]]) == ["second", "first", ""]
    assert names.labels_for("appearance", [["a"], ["b", "c"]]) == ["", "first"]
    assert names.labels_for("motion", [["a", "b", "c"]]) == [""]
