import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from stillmotion.errors import StillmotionError
from stillmotion.functional.knn import knn_search, retrieval_average_precision


def cosines(x, y):
    """All cosines, in float64."""
    x, y = x.numpy().astype(np.float64), y.numpy().astype(np.float64)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T


def vectors(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("block", [1, 40 * 37, 1 << 22])
def test_top_k_is_the_head_of_the_sorted_cosines(block):
    x, y = vectors(70, 6), vectors(37, 6, seed=1)
    similarities, numbers = knn_search(x, y, k=5, max_similarities=block)
    expected = cosines(x, y)
    order = np.argsort(-expected, axis=1)[:, :5]
    np.testing.assert_array_equal(numbers, order)
    np.testing.assert_allclose(similarities, np.take_along_axis(expected, order, 1), atol=1e-5)


def test_a_query_is_not_its_own_answer():
    x = vectors(40, 5)
    indices = torch.arange(40)
    indices[7] = -1  # the query itself is not a reference
    numbers = knn_search(x, x, k=39, self_index=indices, max_similarities=1)[1]
    expected = cosines(x, x)
    expected[indices[indices >= 0], indices[indices >= 0]] = -np.inf
    np.testing.assert_array_equal(numbers, np.argsort(-expected, axis=1)[:, :39])
    assert numbers[7, 0] == 7


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.data())
def test_of_equals_the_lower_number_comes_first(values, data):
    """The directions differ by quarter turns: their cosines are exactly 1, 0 and -1, with many ties."""
    turns = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    references = turns[values] * torch.arange(1, len(values) + 1)[:, None]
    k = data.draw(st.integers(1, len(values)))
    similarities, numbers = knn_search(turns, references, k=k)
    expected = turns @ turns[values].mT
    np.testing.assert_array_equal(numbers, np.argsort(-expected.numpy(), axis=1, kind="stable")[:, :k])
    np.testing.assert_array_equal(similarities, expected.gather(1, numbers))


def test_vectors_of_zeros_are_as_near_to_all_and_not_ranked_by_number():
    """Labels are sorted, as those of folders: ranking ties by number would give all queries the first class."""
    labels = torch.arange(300) // 100
    nothing, something = torch.zeros(300, 4), vectors(300, 4)
    for x, y in ((nothing, something), (something, nothing), (nothing, nothing)):
        similarities, numbers = knn_search(x, y, k=1)
        assert 0.2 < (labels[numbers[:, 0]] == labels).double().mean() < 0.47  # 5 standard deviations around chance
        assert similarities.abs().max() < 1e-29
        assert len(numbers.unique()) > 100
        torch.testing.assert_close(numbers, knn_search(x, y, k=1)[1])
        precision = retrieval_average_precision(x, y, labels, labels)
        assert abs(float(precision.mean()) - 1 / 3) < 0.03
    references = torch.cat([vectors(20, 4), nothing[:20]])
    best, result = knn_search(vectors(1, 4), references, k=40)
    assert (best.diff() <= 0).all()
    assert (best[result >= 20].abs() < 1e-29).all()


@pytest.mark.parametrize("block", [1, 1 << 22])
def test_average_precision_is_scikit_learns(block):
    x, y = vectors(50, 4), vectors(61, 4, seed=1)
    rng = np.random.default_rng(0)
    x_labels, y_labels = rng.integers(3, size=50), rng.integers(3, size=61)
    result = retrieval_average_precision(
        x, y, torch.from_numpy(x_labels), torch.from_numpy(y_labels), max_similarities=block
    )
    similar = cosines(x, y)
    expected = [average_precision_score(y_labels == x_labels[i], similar[i]) for i in range(50)]
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_average_precision_without_the_query_itself():
    x = vectors(20, 4)
    labels = torch.arange(20) % 3
    result = retrieval_average_precision(x, x, labels, labels, self_index=torch.arange(20))
    similar = cosines(x, x)
    for i in range(20):
        others = np.arange(20) != i
        expected = average_precision_score(labels.numpy()[others] == i % 3, similar[i][others])
        assert result[i] == pytest.approx(expected, abs=1e-6)


def test_a_query_whose_class_nobody_has_is_missed():
    x = vectors(3, 4)
    assert retrieval_average_precision(x, x, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 1]))[2] == 0


def test_top_k_is_limited_by_the_number_of_references():
    x = vectors(4, 3)
    with pytest.raises(StillmotionError, match="k is 5; must be between 1 and the number of references, 4"):
        knn_search(x, x, k=5)
    with pytest.raises(StillmotionError, match=r"k is 4; must be .* 3"):
        knn_search(x, x, k=4, self_index=torch.arange(4))
    with pytest.raises(StillmotionError, match="k is 0"):
        knn_search(x, x, k=0)
