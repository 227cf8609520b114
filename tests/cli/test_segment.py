"""`segment` as a user types it."""

import json

import pytest
from support.process import Command

SMALL = (
    "--data.synthetic.num-train 4 --data.synthetic.num-test 2 --data.synthetic.frames-per-action 4 6 "
    "--data.feature-stride 4 --head.hidden-dim 4 --head.num-layers 2 --optim.batch-size 2"
)


@pytest.mark.parametrize(
    "words", [["--head", "mstcn", "--head.num-stages", "2"], ["--head=fact", "--head.num-heads", "2"]]
)
def test_the_debug_recipe_prints_scores_and_writes_a_report(tmp_path, words):
    run = tmp_path / "run"
    command = Command("segment", "--debug", "--out", str(run), *words, *SMALL.split(), "--optim.epochs", "2")
    assert "step 4/4" in command.expect_success()
    lines = command.stdout.splitlines()
    assert lines[0].split() == ["Edit", "accuracy", "F1@10", "F1@25", "F1@50"]
    assert lines[1].split()[0] == json.loads((run / "results.json").read_text())["head"]
    assert lines[2].startswith("always ")
    assert {"report.html", "results.json", "timelines.png", "predictions", "features"} <= {
        f.name for f in run.iterdir()
    }
    page = (run / "report.html").read_text()
    assert "F1@50" in page
    assert "<svg" in page
