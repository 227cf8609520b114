import shutil
from pathlib import Path

import pytest
from support.html import assert_self_contained
from support.process import Command

from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.report import write_transfer_page
from stillmotion.training.transfer.task import transfer


@pytest.fixture(scope="module")
def transfer_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return transfer(TRANSFER_RECIPES.get("dinov2-b16", debug=True), tmp_path_factory.mktemp("transfer") / "run")


def test_the_page_holds_settings_curves_and_matches(transfer_run: Path) -> None:
    html = write_transfer_page(transfer_run).read_text()
    assert_self_contained(html)
    for words in ("debug:dinov2-b16", "random weights", "random, ratio 10", "suggests that positions are matched"):
        assert words in html
    for label in ("loss part cycle", "loss part separability", "cycle accuracy over the steps"):
        assert f'aria-label="{label}"' in html
    assert html.count("data:image/webp") == 4
    for words in (f"geometry {transfer_run} --data …", f"propagate {transfer_run} --data … --out …"):
        assert f"stillmotion {words}" in html


def test_the_page_says_what_it_cannot_show(transfer_run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(transfer_run, tmp_path / "run"))
    (run / "metrics.jsonl").unlink()
    config = run / "config.json"
    config.write_text(config.read_text().replace('"path": "synthetic"', '"path": "/nowhere/at/all"'))
    html = write_transfer_page(run).read_text()
    assert html.count("No step has been logged yet.") == 2
    assert "Not shown: /nowhere/at/all" in html
    assert "data:image/webp" not in html


def test_report_knows_whose_run_it_is(transfer_run: Path, run: Path) -> None:
    runs = {"Transfer run": transfer_run, "Pretraining run": run}
    commands = {title: Command("report", str(run)) for title, run in runs.items()}
    for title, command in commands.items():
        assert command.expect_success() == ""
        assert f"<h1>{title}" in Path(command.stdout.removeprefix("written: ").strip()).read_text()
