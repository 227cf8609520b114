import csv

import numpy as np
import pytest
from support.sweep_results import make_results

from stillmotion.studies.statistics import significance_margin
from stillmotion.studies.sweep.report import write_sweep_page
from stillmotion.studies.sweep.table import (
    Claim,
    claim_table,
    format_sweep_table,
    judge_claim,
    metric_columns,
    result_table,
    seed_values,
    significance_margins,
    untrained_rows,
    write_csv,
)
from stillmotion.utils.formatting import markdown_table


def test_cells_are_mean_and_deviation_over_seeds_as_numpy_has_them(tmp_path):
    result = make_results()
    assert metric_columns(result) == ["light", "motion", "average", "step_seconds", "step_memory_mib"]
    header, rows = result_table(result)
    assert header == ["optim.lr", "light", "motion", "average", "s/step", "MiB"]
    light = result["points"]["b"]["accuracy"]["whole"]["light"]
    assert rows[1][1].startswith(f"{np.mean(light):.3f} ± {np.std(light, ddof=1):.3f}")
    assert rows[0] == ["a", "0.600 ± 0.141", "0.300 ± 0.000", "0.450 ± 0.071", "0.200 ± 0.141", "8.0"]
    assert rows[2] == ["untrained", "0.500 ± 0.141", "0.300 ± 0.141", "0.400 ± 0.141", "", ""]

    write_csv(tmp_path / "results.csv", result)
    with (tmp_path / "results.csv").open() as file:
        head, *body = csv.reader(file)
    assert head[:3] == ["optim.lr", "light mean", "light std"]
    assert [float(x) for x in body[1][1:3]] == pytest.approx([np.mean(light), np.std(light, ddof=1)])
    assert [row[0] for row in body] == ["a", "b", "untrained"]


def test_a_star_stands_where_a_point_leaves_the_margin_of_its_column():
    result = make_results()
    result["significance_margin"] = {
        "light": 0.3,
        "motion": 0.2,
        "average": None,
        "step_seconds": 0.0,
        "step_memory_mib": 0.0,
    }
    assert [cell.endswith("*") for cell in result_table(result)[1][1]] == [False, True, False, False, False, False]
    assert significance_margins(result)["light"] == significance_margin(
        np.array([seed_values(result, p, "light") for p in "ab"])
    )


def test_untrained_networks_that_differ_have_rows_of_their_own():
    result = make_results()
    result["points"]["b"]["untrained"] = {"whole": {"light": [0.1, 0.1], "motion": [0.1, 0.1], "average": [0.1, 0.1]}}
    assert list(untrained_rows(result)) == ["untrained, a", "untrained, b"]


def test_a_claim_is_judged_by_the_column_it_is_about():
    result = make_results()
    result["significance_margin"] = dict.fromkeys(metric_columns(result), 0.2)
    more = judge_claim(Claim("b sees more", "b", "a", source="Table 1"), result)
    assert more["difference"] == pytest.approx(0.25)
    assert more["verdict"] == "agrees"
    assert judge_claim(Claim("a sees more light", "a", "b", metric="light"), result)["verdict"] == "differs"
    assert judge_claim(Claim("a is slower", "a", "b", metric="step_seconds"), result)["verdict"] == "within noise"
    assert (
        judge_claim(Claim("as large", "a", "b", metric="step_memory_mib", expect_equal=True), result)["verdict"]
        == "agrees"
    )
    header, (row,) = claim_table(result | {"claims": [more]})
    assert dict(zip(header, row, strict=True)) == {
        "claim": "b sees more",
        "source": "Table 1",
        "metric": "average",
        "measured": "0.700, 0.450",
        "difference": "+0.250",
        "margin": "0.200",
        "verdict": "agrees",
    }


def test_text_and_markdown_have_a_line_for_each_row():
    assert [line.split()[0] for line in format_sweep_table(make_results())] == [
        "optim.lr",
        "a",
        "b",
        "untrained",
        "whole",
    ]
    assert markdown_table(["x", "y"], [["1", "2"]]) == ["| x | y |", "| --- | --- |", "| 1 | 2 |"]


def test_the_page_shows_the_table_the_claims_and_what_was_typed(tmp_path):
    result = make_results()
    result["claims"] = [judge_claim(Claim("b sees more", "b", "a", source="Table 1"), result)]
    html = write_sweep_page(tmp_path, result).read_text()
    for words in (
        "Sweep: a try",
        "0.600 ± 0.141",
        "b sees more",
        "stillmotion study sweep --field optim.lr",
        "runs/b-1",
    ):
        assert words in html
    assert html.count("<svg") == 2
    assert "Comparison with the paper" not in write_sweep_page(tmp_path, result | {"claims": []}).read_text()
