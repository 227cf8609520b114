"""The map of embeddings and the groups that k-means finds without labels."""

import itertools

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.metrics import adjusted_rand_score

from stillmotion.browse.embedding_map import alignment_graph, embed_graph, kmeans_groups, layout_2d, pca_reduce
from stillmotion.browse.group_labels import GroupLabels
from stillmotion.functional.motion_alignment import aligned_similarity, field_spectrum


def make_clusters(count, *, per_cluster=20, seed=0):
    """Return vectors in `count` clusters that are far apart, and the cluster of each vector."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(count), per_cluster)
    return np.eye(16)[labels] + 0.08 * rng.standard_normal((len(labels), 16)), labels


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_groups_are_the_clouds_that_are_there(count):
    vectors, labels = make_clusters(count)
    groups = kmeans_groups(pca_reduce(vectors))
    assert len(np.unique(groups)) == count
    assert all(len(np.unique(groups[labels == cluster])) == 1 for cluster in range(count))


def test_the_largest_group_comes_first():
    vectors, _ = make_clusters(3)
    vectors = vectors[np.r_[0:5, 20:40, 40:52]]
    assert np.bincount(kmeans_groups(pca_reduce(vectors))).tolist() == [20, 12, 5]


def test_vectors_that_are_all_alike_are_one_group_on_one_spot():
    vectors = np.ones((30, 8))
    assert kmeans_groups(pca_reduce(vectors)).tolist() == [0] * 30
    assert np.isfinite(layout_2d(pca_reduce(vectors))).all()


def test_vectors_without_channels_have_places():
    assert layout_2d(pca_reduce(np.zeros((5, 0)))).shape == (5, 2)


@pytest.mark.parametrize("max_tsne_points", [2000, 60])  # 60 is fewer than the number of vectors
def test_near_vectors_stay_near_on_the_map_and_no_two_lie_on_each_other(max_tsne_points):
    vectors, labels = make_clusters(3, per_cluster=40)
    points = layout_2d(pca_reduce(vectors), max_tsne_points=max_tsne_points)
    assert points.min() >= -1e-9
    assert points.max() <= 1 + 1e-9
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(1)] == labels).mean() > 0.98
    assert distances.min() > 0.1 / np.sqrt(len(points))


def test_a_map_is_the_same_each_time():
    vectors, _ = make_clusters(3)
    np.testing.assert_array_equal(layout_2d(pca_reduce(vectors)), layout_2d(pca_reduce(vectors)))


def test_a_name_stays_with_its_moments_when_groups_are_found_anew(tmp_path):
    names = GroupLabels(tmp_path)
    names.set_label("appearance", [["a", "b", "c"], ["d", "e"]], 0, "first")
    names.set_label("appearance", [["a", "b", "c"], ["d", "e"]], 1, "second")
    assert names.labels_for("appearance", [["d", "e", "f"], ["a", "b", "x"], ["y"]]) == ["second", "first", ""]
    assert names.labels_for("appearance", [["a"], ["b", "c"]]) == ["", "first"]
    assert names.labels_for("motion", [["a", "b", "c"]]) == [""]


def moving_fields(num_kinds: int, per_kind: int) -> torch.Tensor:
    """Fields of several random motions, each shifted in time and mirrored; the last kind has no motion."""
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
