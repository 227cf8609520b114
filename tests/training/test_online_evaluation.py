"""Evaluation between epochs gives the results of the verbs and does not change the training."""

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders
from support.process import two_ranks
from support.run_comparison import assert_same_weights
from support.small_pretrain import single_thread, small_config, train

from stillmotion.data.datasets.splits import TrainTestConfig, TrainTestSplit
from stillmotion.encoders import load
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
from stillmotion.training import online_evaluation
from stillmotion.training.checkpoint import load_training_state
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config
from stillmotion.training.run_log import load_metrics
from stillmotion.training.tasks import get_recipe
from stillmotion.training.transfer.task import transfer

THREE_EPOCHS = {"optim.epochs": 3, "train.checkpoint_every_steps": 3}
EVALUATED = THREE_EPOCHS | {"train.eval_every_epochs": 2, "train.eval_num_videos": 16}


def rows(run):
    """Return the logged lines of evaluations, by step."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row for row in lines if any(name.startswith("online_knn/") for name in row)}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of six steps in three epochs with evaluation; MoCo has queues and norms and uses torch's generator."""
    return train(small_config("k400-bod-moco", EVALUATED), tmp_path_factory.mktemp("between") / "run")


def test_evaluation_changes_no_bit_of_the_training(run, tmp_path):
    assert_same_weights(run, train(small_config("k400-bod-moco", THREE_EPOCHS), tmp_path / "plain"))


def test_it_comes_before_the_first_step_every_so_many_epochs_and_at_the_end(run):
    assert list(rows(run)) == [0, 4, 6]
    names = set(rows(run)[6]) - {"step"}
    assert {"online_knn/dynamic/trajectory", "online_probe/static/color", "online_knn/whole/shape"} <= names
    assert load_metrics(run)["online_knn/static/color"][-1] == (6, rows(run)[6]["online_knn/static/color"])


def test_it_finds_what_the_verbs_find(run):
    encoder, split, online = load(run), TrainTestConfig("synthetic", num_synthetic=8), rows(run)[6]
    with single_thread():
        probe_accuracy = evaluate_linear_probe(encoder, split, LinearProbeConfig(num_clips=4)).accuracy["pretrained"]
        (retrieval,) = evaluate_retrieval([encoder], split, RetrievalConfig(num_clips=4)).values()
    for kind in ("whole", "static", "dynamic"):
        for target in probe_accuracy[kind]:
            assert online[f"online_probe/{kind}/{target}"] == probe_accuracy[kind][target]["top1"]
            assert online[f"online_knn/{kind}/{target}"] == retrieval.scores[kind][target]["recall@1"]


class Killed(BaseException):
    """An exception that is never caught."""


STOPPED = Interrupted("stopped", 143)


@pytest.mark.slow
@pytest.mark.parametrize(("end", "turn"), [(Killed(), 1), (Killed(), 2), (STOPPED, 2), (STOPPED, 3)])
def test_a_run_that_ends_within_an_evaluation_goes_on_to_the_same(run, tmp_path, monkeypatch, end, turn):
    folder, turns = tmp_path / "run", []

    def interrupting_scores(*arguments):
        turns.append(torch.rand(3))  # the resumed run draws the same numbers
        if len(turns) == turn:
            raise end
        return scores(*arguments)

    scores = online_evaluation._knn_and_probe_accuracy
    monkeypatch.setattr(online_evaluation, "_knn_and_probe_accuracy", interrupting_scores)
    with pytest.raises(type(end)) as error_info:
        train(small_config("k400-bod-moco", EVALUATED), folder)
    if isinstance(end, Interrupted):
        assert f"at step {[0, 4, 6][turn - 1]} of 6 during online evaluation" in str(error_info.value)
        assert error_info.value.exit_code == 143
        assert load_training_state(folder)["step"] == [0, 4, 6][turn - 1]
    train(small_config("k400-bod-moco", EVALUATED), folder)
    assert_same_weights(run, folder)
    assert rows(run) == rows(folder)


def test_a_finished_run_is_not_evaluated_again(run, monkeypatch):
    monkeypatch.setattr(online_evaluation, "_knn_and_probe_accuracy", lambda *_: pytest.fail("asked again"))
    before = rows(run)
    train(small_config("k400-bod-moco", EVALUATED), run)
    assert rows(run) == before


def test_a_failed_evaluation_is_reported_and_the_run_continues(tmp_path, caplog, monkeypatch):
    def failing(*_, **__):
        raise StillmotionError("no video can be read")

    monkeypatch.setattr(online_evaluation, "extract_features_distributed", failing)
    folder = train(small_config(overrides=EVALUATED), tmp_path / "run")
    for epoch in (0, 2, 3):
        assert f"Online evaluation after epoch {epoch} was skipped: no video can be read" in caplog.text
    assert_same_weights(folder, train(small_config(overrides=THREE_EPOCHS), tmp_path / "plain"))


def test_videos_without_labels_are_reported_once_and_others_can_be_evaluated(tmp_path, caplog):
    labelled_dir = write_class_folders(tmp_path / "labelled", videos_per_class=4)
    unlabelled_dir = tmp_path / "plain"
    unlabelled_dir.mkdir()
    for number, file in enumerate(sorted(labelled_dir.glob("*/*.mp4"))):
        (unlabelled_dir / f"{number}.mp4").write_bytes(file.read_bytes())
    changes = EVALUATED | {"data.path": str(unlabelled_dir), "data.num_workers": 0, "data.augment": "weak"}
    train(small_config(overrides=changes), tmp_path / "run")
    output = caplog.text
    assert output.count("Online evaluation is disabled") == 1
    assert "--train.eval-data" in output
    second_run = train(small_config(overrides=changes | {"train.eval_data": str(labelled_dir)}), tmp_path / "other")
    assert set(rows(second_run)[3]) == {"step"} | {
        f"{m}/{k}" for m in ("online_knn", "online_probe") for k in ("whole", "static", "dynamic")
    }
    assert "Online evaluation: 6 training and 2 test videos (random 70/30 split" in caplog.text
    with pytest.raises(StillmotionError, match="no such file"):
        train(small_config(overrides=changes | {"train.eval_data": str(tmp_path / "gone")}), tmp_path / "third")


def test_of_many_classes_some_are_drawn_by_seed_ten_videos_of_each():
    videos: Any = SimpleNamespace(labels={"label": np.arange(1000) % 50})  # 50 classes
    train_test_split = TrainTestSplit(videos, [(np.arange(800), np.arange(800, 1000))], "")
    train, test = online_evaluation._sample_train_test(train_test_split, 60, seed=1)
    assert (len(train), len(test)) == (36, 24)
    assert len(np.unique(np.concatenate([train, test]) % 50)) == 6
    second, other_seed = (online_evaluation._sample_train_test(train_test_split, 60, seed=seed) for seed in (1, 2))
    assert np.array_equal(second[0], train)
    assert not np.array_equal(other_seed[0], train)


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path):
    line = (
        "pretrain --recipe k400-simclr --debug --train.num-threads 1 --train.eval-every-epochs 1 "
        "--train.eval-num-videos 16 --data.synthetic.num-videos 16 --optim.epochs 1 --out"
    )
    for command in two_ranks(*line.split(), str(tmp_path / "two")):
        command.expect_success()
    single_run = train(load_config(tmp_path / "two", PretrainConfig), tmp_path / "one")
    assert rows(tmp_path / "two")[0] == rows(single_run)[0]
    assert len(rows(tmp_path / "two")) == 2


def test_a_transfer_run_is_evaluated_too(tmp_path):
    config = get_recipe("dinov2-b16", verb="transfer", debug=True)
    without_evaluation = replace(config, optim=replace(config.optim, epochs=1))
    with_evaluation = replace(
        without_evaluation, train=replace(without_evaluation.train, eval_every_epochs=1, eval_num_videos=12)
    )
    with single_thread():
        folders = [
            transfer(c, tmp_path / name) for name, c in (("plain", without_evaluation), ("asked", with_evaluation))
        ]
    assert_same_weights(*folders)
    assert {"online_knn/motion/trajectory", "online_probe/whole/color"} <= set(rows(folders[1])[0])
