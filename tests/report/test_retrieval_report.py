"""What retrieve found, on the page of a run."""

import json

from stillmotion.report.page import run_report
from stillmotion.report.retrieval import retrieval_sections

RESULTS = {
    **{"data": "~/videos", "protocol": "split", "split": "its own", "clips": 4, "queries": 30},
    "scores": {
        "static": {"class": {"R@1": 0.25, "R@5": 0.75, "mAP": 0.3}},
        "motion": {"class": {"R@1": 0.875, "R@5": 0.5, "mAP": 0.4}},
    },
    "chance": {"class": {"R@1": 0.2, "R@5": 0.6, "mAP": 0.21}},
}


def test_a_table_has_every_embedding_and_stresses_the_best(tmp_path):
    (tmp_path / "retrieve.json").write_text(json.dumps(RESULTS))
    (section,) = retrieval_sections(tmp_path)
    (table,) = section.blocks
    assert table.header == ["nearest by", "R@1", "R@5", "mAP"]
    assert table.rows[1] == ["motion", "0.875", "0.500", "0.400"]
    assert table.rows[-1] == ["random order", "0.200", "0.600", "0.210"]
    assert table.strong == {(1, 1), (0, 2), (1, 3)}


def test_a_run_that_was_not_asked_has_no_such_section(tmp_path):
    assert retrieval_sections(tmp_path) == []


def test_the_page_of_a_run_shows_it_and_outlives_a_damaged_file(run):
    (run / "retrieve.json").write_text(json.dumps(RESULTS))
    page = run_report(run).read_text()
    assert "<h2>Retrieval</h2>" in page
    assert "0.875" in page
    (run / "retrieve.json").write_text("{")
    assert "retrieve.json is torn or damaged" in run_report(run).read_text()
