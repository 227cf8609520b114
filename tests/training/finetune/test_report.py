import json
import shutil

import numpy as np
import pytest
from support.html import assert_self_contained

from stillmotion.training.finetune.evaluate import classification_metrics
from stillmotion.training.finetune.recipes import FINETUNE_RECIPES
from stillmotion.training.finetune.report import write_finetune_page
from stillmotion.training.run_report import write_run_page
from stillmotion.utils.typed_config import to_dict


@pytest.fixture
def run(tmp_path):
    """Write the files of a run without training it."""
    folder = tmp_path / "run"
    folder.mkdir()
    classes = ["run", "sit", "fly"]
    results = classification_metrics(np.eye(3)[[0, 0, 1, 1]], np.array([0, 1, 1, -1]), classes) | {
        "classes": classes,
        "train_videos": 9,
        "test_videos": 4,
        "split_description": "its own",
        "target": "class",
        "steps": 2,
        "majority_accuracy": 0.25,
        "num_test_clips": 10,
        "num_test_crops": 1,
        "failed": {"torn.mp4": "torn"},
    }
    (folder / "config.json").write_text(json.dumps(to_dict(FINETUNE_RECIPES.get("vididi"))))
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "metrics.jsonl").write_text(
        '{"step": 1, "loss/cross_entropy": 1.0}\n{"step": 2, "loss/cross_entropy": 0.5}\n'
    )
    return folder


def test_the_page_holds_curves_accuracy_classes_and_confusion(run):
    html = write_finetune_page(run).read_text()
    assert html.count("<svg") == 2
    for words in ("top-1", "0.500", "most frequent error", "run (1)", "none tested", "torn.mp4", "× 0.1 at epochs 60"):
        assert words in html
    assert_self_contained(html)


def test_folds_are_shown_with_their_mean(run, tmp_path):
    folds = tmp_path / "folds"
    results = json.loads((run / "results.json").read_text())
    for i in (1, 2):
        shutil.copytree(run, folds / f"fold{i}")
    means = {"top1": 0.5, "top5": 0.75, "mean_class_accuracy": 0.75, "folds": {"1": results, "2": results}}
    (folds / "results.json").write_text(json.dumps(means))
    html = write_run_page(folds).read_text()
    assert html.count("<svg") == 4
    assert "fold 2: Confusion" in html
    assert_self_contained(html)


def test_of_a_run_that_was_not_tested_yet_the_page_says_how_far_it_is(run):
    (run / "results.json").unlink()
    html = write_run_page(run).read_text()
    assert "The run is not finished and not being trained" in html
    assert html.count("<svg") == 1
