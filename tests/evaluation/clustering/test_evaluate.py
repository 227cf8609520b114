import numpy as np
import pytest
from sklearn.metrics import silhouette_score
from support.class_videos import write_class_folders

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import load
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.clustering.evaluate import (
    evaluate_clustering,
    rank_classes_by_recall,
    silhouette_by_num_classes,
)
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import RetrievalResult, evaluate_retrieval


def test_silhouette_of_a_hand_case():
    """Two pairs on a line: a = 1 and b = 10.5 or 9.5, so 1 - 1/10.5 for outer and 1 - 1/9.5 for inner points."""
    x = np.array([[0.0], [1.0], [10.0], [11.0]])
    result = silhouette_by_num_classes(x, np.array([0, 0, 1, 1]))
    assert result == {2: pytest.approx(1 - (1 / 10.5 + 1 / 9.5) / 2)}
    with_single = silhouette_by_num_classes(x, np.array([0, 0, 1, -1]))  # a class of one video scores 0
    assert with_single == {2: pytest.approx((0.9 + 8 / 9 + 0) / 3)}
    assert np.isnan(silhouette_by_num_classes(x, np.zeros(4, int))[1])
    assert np.isnan(silhouette_by_num_classes(x, np.arange(4))[4])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_scores_are_of_the_best_classes_and_of_all(metric):
    rng = np.random.default_rng(0)
    ranks = rng.integers(12, size=200)
    x = rng.normal(size=(12, 5))[ranks] + rng.normal(size=(200, 5))
    result = silhouette_by_num_classes(x, ranks, metric=metric)
    assert list(result) == [3, 5, 10, 12]
    for size, score in result.items():
        selected = ranks < size
        assert score == pytest.approx(silhouette_score(x[selected], ranks[selected], metric=metric))


def test_classes_are_ranked_by_recall_and_then_by_precision():
    labels = np.array([0, 0, 1, 1, 2, 2])
    hits = np.zeros((6, 10), bool)
    hits[[0, 2, 4, 5], 0] = True
    precision = np.array([0.2, 0.2, 0.9, 0.9, 0.1, 0.1])
    order, recall = rank_classes_by_recall(RetrievalResult(hits, precision, labels, np.zeros((6, 4))))
    assert order == [2, 1, 0]
    assert recall == [1.0, 0.5, 0.5]


def test_clusters_are_of_the_videos_that_retrieval_ranks(run, tmp_path):
    write_class_folders(tmp_path / "set" / "train", videos_per_class=4, num_frames=10, image_size=32)
    write_class_folders(tmp_path / "set" / "test", videos_per_class=3, num_frames=10, image_size=32, seed=1)
    encoders, split_config = [load(run)], TrainTestConfig(tmp_path / "set")
    result = evaluate_clustering(encoders, split_config, ClusteringConfig(num_clips=1))
    assert [(c.encoder_name, c.feature_kind, c.target) for c in result] == [
        ("run", kind, "class") for kind in ("whole", "static", "dynamic", "motion")
    ]
    scores = evaluate_retrieval(encoders, split_config, RetrievalConfig(num_clips=1))["run"].scores["whole"]
    assert np.mean(result[0].recall_at_1) == pytest.approx(scores["class"]["recall@1"])
    assert sorted(result[0].class_names) == ["dark", "light"]
    assert result[0].silhouette[2] == pytest.approx(silhouette_score(result[0].vectors, result[0].class_ranks))
    counts = [
        len(evaluate_clustering(encoders, split_config, ClusteringConfig(num_clips=1, split=s))[0].class_ranks)
        for s in ("test", "train", "all")
    ]
    assert counts == [6, 8, 14]
