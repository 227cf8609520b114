"""Retrieval results on the page of a run."""

import json

from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.training.pretrain.report import write_pretrain_page

RESULTS = {
    **{"encoder": "runs/mine", "data": "~/videos", "protocol": "train-test", "candidates": "test", "num_clips": 4},
    **{"split_description": "its own", "frames": 8, "queries": 30, "reference_counts": [70], "failed": {}},
    "scores": {
        "static": {"class": {"recall@1": 0.25, "recall@5": 0.75, "mAP": 0.3}},
        "motion": {"class": {"recall@1": 0.875, "recall@5": 0.5, "mAP": 0.4}},
    },
    "chance": {"class": {"recall@1": 0.2, "recall@5": 0.6, "mAP": 0.21}},
}


def test_a_table_has_every_embedding_and_stresses_the_best(tmp_path):
    (tmp_path / "retrieval.json").write_text(json.dumps(RESULTS))
    (section,) = retrieval_sections(tmp_path)
    (table,) = section.blocks
    assert table.header == ["encoder", "features", "recall@1", "recall@5", "mAP"]
    assert table.rows[1] == [tmp_path.name, "motion", "0.875", "0.500", "0.400"]
    assert table.rows[-1] == ["random order", "", "0.200", "0.600", "0.210"]
    assert table.bold_cells == {(1, 2), (0, 3), (1, 4)}


def test_a_run_without_retrieval_results_has_no_such_section(tmp_path):
    assert retrieval_sections(tmp_path) == []


def test_the_page_of_a_run_shows_it_and_outlives_a_damaged_file(run):
    (run / "retrieval.json").write_text(json.dumps(RESULTS))
    page = write_pretrain_page(run).read_text()
    assert "<h2>Retrieval</h2>" in page
    assert "0.875" in page
    (run / "retrieval.json").write_text("{")
    assert "retrieval.json is torn or damaged" in write_pretrain_page(run).read_text()
