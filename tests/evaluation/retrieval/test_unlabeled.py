"""Retrieval and clustering of videos without labels."""

import numpy as np
import pytest
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import MissingLabelsError, TrainTestConfig
from stillmotion.encoders import extract_features, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.clustering.evaluate import evaluate_clustering
from stillmotion.evaluation.clustering.grouping import agglomerative_groups
from stillmotion.evaluation.clustering.report import write_clustering_page
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
from stillmotion.evaluation.retrieval.report import format_retrieval_reports


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write three dark and three light videos in one folder."""
    root = tmp_path_factory.mktemp("videos")
    classes = write_class_folders(root / "classes", videos_per_class=3)
    (root / "flat").mkdir()
    for video in classes.glob("*/*.mp4"):
        video.rename(root / "flat" / f"{video.parent.name}-{video.name}")
    return root / "flat"


def test_the_nearest_of_each_video_are_those_of_its_cosines(folder):
    with pytest.raises(MissingLabelsError, match="has no labels"):
        TrainTestConfig(folder).open()
    report = evaluate_retrieval([load("flow")], TrainTestConfig(folder), top_k=2)["flow"]
    assert not report.has_labels
    vectors = extract_features(load("flow"), VideoDataConfig(folder).open()).vectors("static").astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T - 9 * np.eye(len(unit))
    names = list(report.neighbors["static"])
    for name, neighbors, row in zip(names, report.neighbors["static"].values(), cosines, strict=True):
        best = np.argsort(-row)[:2]
        assert [other for other, _ in neighbors] == [names[i] for i in best], name
        np.testing.assert_allclose([similarity for _, similarity in neighbors], row[best], atol=1e-3)
    assert list(report.neighbors) == ["static", "motion"]
    lines = format_retrieval_reports({"flow": report})
    assert lines[0].startswith("6 videos of ")
    assert len(lines) == 2 * (2 + 6)


def test_groups_are_found_again():
    rng = np.random.default_rng(0)
    middles = np.repeat([[0, 0], [9, 0], [0, 9]], [5, 3, 4], axis=0)
    result = agglomerative_groups(middles + 0.1 * rng.standard_normal(middles.shape))
    assert result.tolist() == [0] * 5 + [2] * 3 + [1] * 4  # the largest first


def test_clusters_without_labels_are_groups(folder, tmp_path):
    results = evaluate_clustering([load("flow")], TrainTestConfig(folder))
    assert [c.feature_kind for c in results] == ["whole", "static", "dynamic", "motion"]
    for c in results:
        assert not c.is_labeled
        assert (len(c.class_ranks), len(c.class_names)) == (6, c.class_ranks.max() + 1)
    page = write_clustering_page(results, tmp_path / "page", ClusteringConfig(), data=str(folder))
    assert "Groups" in page.read_text()


def test_what_videos_without_labels_are_too_few_for(folder, tmp_path):
    retrieve = Command("retrieve", "--encoder", "flow", "--data", str(folder))
    retrieve.expect_success()
    assert retrieve.stdout.startswith("6 videos of")
    assert "has no labels" in Command("probe", "flow", "--data", str(folder)).expect_error()
    single_video = tmp_path / "alone"
    single_video.mkdir()
    (single_video / "a.mp4").write_bytes(next(folder.iterdir()).read_bytes())
    for evaluate, message in (
        (evaluate_retrieval, "at least 2 readable"),
        (evaluate_clustering, "at least 3 readable"),
    ):
        with pytest.raises(StillmotionError, match=f"{message} videos, got 1"):
            evaluate([load("flow")], TrainTestConfig(single_video))
