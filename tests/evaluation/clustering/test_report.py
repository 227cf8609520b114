import json

import numpy as np
import pytest
from support.html import assert_self_contained

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.clustering.config import ClusteringConfig
from stillmotion.evaluation.clustering.evaluate import ClusterResult, silhouette_by_num_classes
from stillmotion.evaluation.clustering.report import format_clustering_results, silhouette_table, write_clustering_page


def make_result(encoder, kind, *, distance, classes=6):
    rng = np.random.default_rng(0)
    ranks = np.arange(3 * classes) % classes
    vectors = distance * rng.normal(size=(classes, 5))[ranks] + rng.normal(size=(len(ranks), 5))
    names = [f"class {i}" for i in range(classes)]
    return ClusterResult(
        encoder, kind, "class", names, [0.5] * classes, silhouette_by_num_classes(vectors, ranks), vectors, ranks
    )


RESULTS = [
    make_result(name, kind, distance=a) for name, a in (("base", 0.1), ("better", 9.0)) for kind in ("whole", "dynamic")
]


def test_the_page_holds_scores_and_maps_of_every_encoder(tmp_path):
    page = write_clustering_page(RESULTS, tmp_path / "new" / "out", ClusteringConfig(), data="some")
    html = page.read_text()
    assert html.count("<svg") == 8  # the best 5 and all 6 classes, for two encoders and two kinds
    for title in (
        "base, whole: ",
        "better, dynamic: ",
        "The 5 classes that each encoder retrieves best",
        "All 6 classes",
    ):
        assert title in html
    results = json.loads((tmp_path / "new" / "out" / "results.json").read_text())
    assert [c["encoder"] for c in results["clusters"]] == ["base", "base", "better", "better"]
    assert list(results["clusters"][0]["silhouette"]) == ["3", "5", "6"]
    assert (results["data"], results["split"], results["encoders"]) == ("some", "test", ["base", "better"])


def test_the_page_needs_no_network(tmp_path):
    assert_self_contained(write_clustering_page(RESULTS[:1], tmp_path, ClusteringConfig(), data="some").read_text())


def test_the_better_encoder_of_each_kind_is_stressed():
    table = silhouette_table(RESULTS)
    assert table.header == ["encoder", "features", "3", "5", "all 6"]
    assert table.bold_cells == {(row, column) for row in (2, 3) for column in (2, 3, 4)}
    lines = format_clustering_results(RESULTS)
    assert lines[0] == "silhouette scores, class:"
    assert lines[5].split()[:2] == ["better", "dynamic"]


def test_too_few_videos_for_a_map_are_reported_in_its_place(tmp_path):
    small_result = ClusterResult("base", "whole", "class", ["a"], [1.0], {1: np.nan}, np.ones((2, 3)), np.zeros(2, int))
    html = write_clustering_page([small_result], tmp_path, ClusteringConfig(), data="some").read_text()
    assert "is not shown: A t-SNE plot needs at least 4 videos, got 2" in html
    assert json.loads((tmp_path / "results.json").read_text())["clusters"][0]["silhouette"] == {"1": None}


def test_a_place_that_is_a_file_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StillmotionError, match="choose another --out"):
        write_clustering_page(RESULTS, tmp_path / "file", ClusteringConfig(), data="some")
