"""Videos without labels are set side by side."""

import numpy as np
import pytest
from support.class_videos import write_class_folders
from support.process import Command

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import MissingLabelsError, TrainTestConfig
from stillmotion.encoders import extract_features, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.grouping import agglomerative_groups, group_videos
from stillmotion.evaluation.retrieval.unlabeled import format_neighbors, list_neighbors


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six videos in one folder, three dark ones and three light ones."""
    root = tmp_path_factory.mktemp("videos")
    classes = write_class_folders(root / "classes", videos_per_class=3)
    (root / "flat").mkdir()
    for video in classes.glob("*/*.mp4"):
        video.rename(root / "flat" / f"{video.parent.name}-{video.name}")
    return root / "flat"


def test_the_nearest_of_each_are_those_of_its_cosines(folder):
    with pytest.raises(MissingLabelsError, match="has no labels"):
        TrainTestConfig(folder).open()
    found = list_neighbors([load("flow")], VideoDataConfig(folder), top_k=2)["flow"]
    vectors = extract_features(load("flow"), VideoDataConfig(folder).open()).vectors("static").astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T - 9 * np.eye(len(unit))
    names = list(found["nearest"]["static"])
    for name, near, row in zip(names, found["nearest"]["static"].values(), cosines, strict=True):
        best = np.argsort(-row)[:2]
        assert [other for other, _ in near] == [names[i] for i in best], name
        np.testing.assert_allclose([similarity for _, similarity in near], row[best], atol=1e-3)
    assert list(found["nearest"]) == ["static", "motion"]
    lines = format_neighbors({"flow": found}, "there")
    assert lines[0] == "6 videos of there without labels; the nearest to each by flow, with cosines"
    assert len(lines) == 1 + 2 * 7


def test_groups_are_found_again():
    rng = np.random.default_rng(0)
    middles = np.repeat([[0, 0], [9, 0], [0, 9]], [5, 3, 4], axis=0)
    found = agglomerative_groups(middles + 0.1 * rng.standard_normal(middles.shape))
    assert found.tolist() == [0] * 5 + [2] * 3 + [1] * 4  # the largest first


def test_clusters_without_labels_are_groups(folder, tmp_path):
    made = group_videos([load("flow")], VideoDataConfig(folder))
    assert [c.feature_kind for c in made] == ["whole", "static", "dynamic", "motion"]
    for c in made:
        assert (c.target, len(c.class_ranks), len(c.class_names)) == ("group", 6, c.class_ranks.max() + 1)
    page = tmp_path / "page"
    Command(
        "cluster", "--encoder", "flow", "--data", str(folder), "--features", "whole", "--out", str(page)
    ).expect_success()
    assert "Groups" in (page / "report.html").read_text()


def test_a_verb_says_what_it_can(folder, tmp_path):
    retrieve = Command("retrieve", "--encoder", "flow", "--data", str(folder))
    retrieve.expect_success()
    assert retrieve.stdout.startswith("6 videos of")
    assert "has no labels" in Command("probe", "flow", "--data", str(folder)).expect_error()
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "a.mp4").write_bytes(next(folder.iterdir()).read_bytes())
    with pytest.raises(StillmotionError, match="has 1 readable video; two or more can be compared"):
        list_neighbors([load("flow")], VideoDataConfig(alone))
    with pytest.raises(StillmotionError, match="has 1 readable videos; groups need three or more"):
        group_videos([load("flow")], VideoDataConfig(alone))
