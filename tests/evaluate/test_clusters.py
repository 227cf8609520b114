import numpy as np
import pytest
from debug_videos import write_classes
from sklearn.metrics import silhouette_score

from stillmotion.data.halves import Halves
from stillmotion.encoders import load
from stillmotion.evaluate.clusters import best_retrieved, clusters, silhouettes
from stillmotion.evaluate.options import Clustering, Retrieval
from stillmotion.evaluate.retrieve import Answers, retrieve


def test_silhouette_of_a_hand_case():
    """Two pairs on a line: a(0) = 1, b(0) = 10.5, so 1 - 1/10.5 for the outer points and 1 - 1/9.5 for the inner."""
    x = np.array([[0.0], [1.0], [10.0], [11.0]])
    found = silhouettes(x, np.array([0, 0, 1, 1]))
    assert found == {2: pytest.approx(1 - (1 / 10.5 + 1 / 9.5) / 2)}
    alone = silhouettes(x, np.array([0, 0, 1, -1]))  # a class of one video scores 0
    assert alone == {2: pytest.approx((0.9 + 8 / 9 + 0) / 3)}
    assert np.isnan(silhouettes(x, np.zeros(4, int))[1])
    assert np.isnan(silhouettes(x, np.arange(4))[4])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_scores_are_of_the_best_classes_and_of_all(metric):
    rng = np.random.default_rng(0)
    ranks = rng.integers(12, size=200)
    x = rng.normal(size=(12, 5))[ranks] + rng.normal(size=(200, 5))
    found = silhouettes(x, ranks, metric=metric)
    assert list(found) == [3, 5, 10, 12]
    for size, score in found.items():
        some = ranks < size
        assert score == pytest.approx(silhouette_score(x[some], ranks[some], metric=metric))


def test_classes_are_ranked_by_recall_and_then_by_precision():
    labels = np.array([0, 0, 1, 1, 2, 2])
    hits = np.zeros((6, 10), bool)
    hits[[0, 2, 4, 5], 0] = True
    precision = np.array([0.2, 0.2, 0.9, 0.9, 0.1, 0.1])
    order, recall = best_retrieved(Answers(hits, precision, labels, np.zeros((6, 4))))
    assert order == [2, 1, 0]
    assert recall == [1.0, 0.5, 0.5]


def test_clusters_are_of_the_videos_that_retrieval_ranks(run, tmp_path):
    write_classes(tmp_path / "set" / "train", videos=4, frames=10, size=32)
    write_classes(tmp_path / "set" / "test", videos=3, frames=10, size=32, seed=1)
    encoders, halves = [load(run)], Halves(tmp_path / "set")
    found = clusters(encoders, halves, Clustering(clips=1))
    assert [(c.encoder, c.kind, c.target) for c in found] == [
        ("run", kind, "class") for kind in ("whole", "static", "dynamic", "motion")
    ]
    scores = retrieve(encoders, halves, Retrieval(clips=1))["run"]["scores"]["whole"]
    assert np.mean(found[0].recall) == pytest.approx(scores["class"]["R@1"])
    assert sorted(found[0].classes) == ["dark", "light"]
    assert found[0].silhouette[2] == pytest.approx(silhouette_score(found[0].vectors, found[0].ranks))
    counts = [len(clusters(encoders, halves, Clustering(clips=1, split=s))[0].ranks) for s in ("test", "train", "all")]
    assert counts == [6, 8, 14]
