"""Places and groups that are found without labels."""

import itertools

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.metrics import adjusted_rand_score

from stillmotion.browse.embedding_map import alignment_graph, embed_graph, kmeans_groups, layout_2d, pca_reduce
from stillmotion.browse.group_labels import GroupLabels
from stillmotion.functional.motion_alignment import aligned_similarity, field_spectrum


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


def moving_fields(num_kinds: int, per_kind: int) -> torch.Tensor:
    """Fields of several random motions, each at several moments and mirrored; the last ones are still."""
    generator = torch.Generator().manual_seed(0)
    fields = torch.zeros(num_kinds, per_kind, 15, 8, 10, 3)
    for kind, i in itertools.product(range(num_kinds - 1), range(per_kind)):
        if i == 0:
            motion = torch.randn(7, 8, 6, 3, generator=generator)
        field = torch.zeros(15, 8, 10, 3)
        field[4:11, :, 2:8] = motion
        field = field.roll(int(torch.randint(-3, 4, (), generator=generator)), 0)
        fields[kind, i] = field.flip(2) * torch.tensor([1.0, -1.0, 1.0]) if i % 2 else field
    noise = 0.3 * torch.randn(fields.shape, generator=generator)
    fields[:-1] += noise[:-1]
    return fields.flatten(0, 1)


def graph_of(fields: torch.Tensor) -> csr_matrix:
    return alignment_graph(fields.flatten(1).numpy(), field_spectrum(fields).numpy())


def test_groups_by_motion_hold_shifted_and_mirrored_copies_and_still_segments() -> None:
    graph = graph_of(moving_fields(4, 15))
    assert (graph != graph.T).nnz == 0
    kinds = np.repeat(np.arange(4), 15)
    rows, columns = graph.nonzero()
    assert np.mean(kinds[rows] == kinds[columns]) > 0.99
    groups = kmeans_groups(embed_graph(graph), min_silhouette=0.36)
    assert adjusted_rand_score(kinds, groups) > 0.99


def test_links_are_the_nearest_of_a_literal_computation() -> None:
    fields = moving_fields(4, 6)[:18]  # fewer than the candidates: all are compared
    similarity = aligned_similarity(fields, fields)[0].numpy()
    np.fill_diagonal(similarity, -np.inf)
    means = np.sort(similarity, 1)[:, -10:].mean(1)
    expected = np.zeros((18, 18))
    for i in range(18):
        scores = similarity[i] - (means[i] + means) / 2
        for j in np.argsort(-scores)[:10]:
            expected[i, j] += 0.5
            expected[j, i] += 0.5
    np.testing.assert_array_equal(graph_of(fields).toarray(), expected)


def test_unrelated_motions_are_one_group() -> None:
    fields = torch.randn(60, 15, 8, 10, 3, generator=torch.Generator().manual_seed(0))
    assert kmeans_groups(embed_graph(graph_of(fields)), min_silhouette=0.36).tolist() == [0] * 60
