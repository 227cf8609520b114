"""Videos without labels are set side by side."""

import numpy as np
import pytest
from commands import Command
from debug_videos import write_classes

from stillmotion.data.halves import Halves, Unlabelled
from stillmotion.data.videos import Videos
from stillmotion.encoders import extract, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.unlabelled import grouped, groups, neighbour_lines, neighbours


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six videos in one folder, three dark ones and three light ones."""
    root = tmp_path_factory.mktemp("videos")
    classes = write_classes(root / "classes", videos=3)
    (root / "flat").mkdir()
    for video in classes.glob("*/*.mp4"):
        video.rename(root / "flat" / f"{video.parent.name}-{video.name}")
    return root / "flat"


def test_the_nearest_of_each_are_those_of_its_cosines(folder):
    with pytest.raises(Unlabelled, match="has no labels"):
        Halves(folder).open()
    found = neighbours([load("flow")], Videos(folder), top=2)["flow"]
    vectors = extract(load("flow"), Videos(folder).open()).vector("static").astype(np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T - 9 * np.eye(len(unit))
    names = list(found["nearest"]["static"])
    for name, near, row in zip(names, found["nearest"]["static"].values(), cosines, strict=True):
        best = np.argsort(-row)[:2]
        assert [other for other, _ in near] == [names[i] for i in best], name
        np.testing.assert_allclose([similarity for _, similarity in near], row[best], atol=1e-3)
    assert list(found["nearest"]) == ["static", "motion"]
    lines = neighbour_lines({"flow": found}, "there")
    assert lines[0] == "6 videos of there without labels; the nearest to each by flow, with cosines"
    assert len(lines) == 1 + 2 * 7


def test_groups_are_found_again():
    rng = np.random.default_rng(0)
    middles = np.repeat([[0, 0], [9, 0], [0, 9]], [5, 3, 4], axis=0)
    found = grouped(middles + 0.1 * rng.standard_normal(middles.shape))
    assert found.tolist() == [0] * 5 + [2] * 3 + [1] * 4  # the largest first


def test_clusters_without_labels_are_groups(folder, tmp_path):
    made = groups([load("flow")], Videos(folder))
    assert [c.kind for c in made] == ["whole", "static", "dynamic", "motion"]
    for c in made:
        assert (c.target, len(c.ranks), len(c.classes)) == ("group", 6, c.ranks.max() + 1)
    page = tmp_path / "page"
    Command("clusters", "--encoder", "flow", "--data", str(folder), "--by", "whole", "--out", str(page)).succeed()
    assert "Groups" in (page / "report.html").read_text()


def test_a_verb_says_what_it_can(folder, tmp_path):
    retrieve = Command("retrieve", "--encoder", "flow", "--data", str(folder))
    retrieve.succeed()
    assert retrieve.answer.startswith("6 videos of")
    assert "has no labels" in Command("probe", "flow", "--data", str(folder)).refuse()
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "a.mp4").write_bytes(next(folder.iterdir()).read_bytes())
    with pytest.raises(StillmotionError, match="has 1 readable video; two or more can be compared"):
        neighbours([load("flow")], Videos(alone))
    with pytest.raises(StillmotionError, match="has 1 readable videos; groups need three or more"):
        groups([load("flow")], Videos(alone))
