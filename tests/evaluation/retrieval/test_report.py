"""What retrieve found, on the page of a run."""

import json

from stillmotion.evaluation.retrieval.report import retrieval_sections
from stillmotion.training.pretrain.report import write_pretrain_page

RESULTS = {
    **{"data": "~/videos", "protocol": "train-test", "split_description": "its own", "num_clips": 4, "queries": 30},
    "scores": {
        "static": {"class": {"R@1": 0.25, "R@5": 0.75, "mAP": 0.3}},
        "motion": {"class": {"R@1": 0.875, "R@5": 0.5, "mAP": 0.4}},
    },
    "chance": {"class": {"R@1": 0.2, "R@5": 0.6, "mAP": 0.21}},
}


def test_a_table_has_every_embedding_and_stresses_the_best(tmp_path):
    (tmp_path / "retrieval.json").write_text(json.dumps(RESULTS))
    (section,) = retrieval_sections(tmp_path)
    (table,) = section.blocks
    assert table.header == ["nearest by", "R@1", "R@5", "mAP"]
    assert table.rows[1] == ["motion", "0.875", "0.500", "0.400"]
    assert table.rows[-1] == ["random order", "0.200", "0.600", "0.210"]
    assert table.bold_cells == {(1, 1), (0, 2), (1, 3)}


def test_a_run_that_was_not_asked_has_no_such_section(tmp_path):
    assert retrieval_sections(tmp_path) == []


def test_the_page_of_a_run_shows_it_and_outlives_a_damaged_file(run):
    (run / "retrieval.json").write_text(json.dumps(RESULTS))
    page = write_pretrain_page(run).read_text()
    assert "<h2>Retrieval</h2>" in page
    assert "0.875" in page
    (run / "retrieval.json").write_text("{")
    assert "retrieval.json is torn or damaged" in write_pretrain_page(run).read_text()
