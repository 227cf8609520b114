"""Short detection runs: log files, resuming, gradient accumulation, and errors."""

import json

import numpy as np
import pytest
import torch
from support.ava_like import write_ava
from support.run_comparison import load_weights
from support.small_detect import detect_once, small_config

from stillmotion.data.datasets.ava import read_box_csv
from stillmotion.encoders import load
from stillmotion.evaluation.metrics.detection_map import frame_average_precision, mean_average_precision
from stillmotion.training.detect.recipes import DETECT_RECIPES
from stillmotion.training.detect.task import open_action_dataset
from stillmotion.training.run_dir import load_results
from stillmotion.training.run_log import load_metrics


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return detect_once(small_config(), tmp_path_factory.mktemp("runs") / "run")


def test_a_run_writes_scores_of_every_action_for_every_box_and_their_map(run):
    results, config = load_results(run), small_config()
    tests = open_action_dataset(config.data, seed=0, train=False)
    boxes = read_box_csv(run / "detections.csv", has_scores=True)
    assert len(boxes.keyframes) == results["num_detections"] == len(tests.keyframes.boxes) * len(tests.actions)
    assert set(load_metrics(run)) == {"loss/binary_cross_entropy", "grad_norm", "lr", "epoch"}
    scores = frame_average_precision(tests.annotated_boxes, boxes, tests.actions)
    assert results["mAP"] == pytest.approx(mean_average_precision(scores), abs=1e-3)  # the file has rounded values
    assert list(results["AP"]) == list(tests.actions.values())
    assert "predicted boxes" in results["test_box_source"]


def test_a_run_is_an_encoder_of_its_weights_and_clips(run):
    encoder, saved = load(run), load_weights(run)
    assert encoder.origin.kind == "detect"
    assert (encoder.input_config.num_frames, encoder.input_config.stride, encoder.input_config.image_size) == (4, 1, 16)
    for name, tensor in encoder.backbone.state_dict().items():
        assert torch.equal(tensor, saved[f"backbone.{name}"]), name


def test_a_batch_in_parts_gives_the_gradient_of_the_whole_though_boxes_are_unevenly_shared(tmp_path):
    runs = []
    for num_parts in (1, 2, 4):
        config = small_config(head={"freeze_backbone": True}, train={"grad_accum_steps": num_parts}, epochs=1)
        runs.append(load_weights(detect_once(config, tmp_path / str(num_parts))))
    for later_run in runs[1:]:
        torch.testing.assert_close(later_run["classifier.weight"], runs[0]["classifier.weight"], atol=1e-6, rtol=1e-4)


def test_a_frozen_run_trains_the_classifier_alone(run, tmp_path):
    frozen = load_weights(detect_once(small_config(head={"freeze_backbone": True}), tmp_path / "frozen"))
    start = load_weights(detect_once(small_config(head={"freeze_backbone": True}, lr=1e-12), tmp_path / "begun"))
    for name, value in frozen.items():
        assert torch.equal(value, start[name]) == name.startswith("backbone."), name
    assert any(not torch.equal(value, start[name]) for name, value in load_weights(run).items() if "backbone" in name)


def test_seeds_draw_other_networks_and_videos(run, tmp_path):
    other_run = detect_once(small_config(train={"seed": 1}, epochs=1), tmp_path / "other")
    assert not torch.equal(
        load_weights(run)["backbone.layers.0.0.weight"], load_weights(other_run)["backbone.layers.0.0.weight"]
    )


def test_ava_is_read_and_unreadable_videos_are_named_and_left_out(tmp_path):
    write_ava(tmp_path / "ava", num_videos=3, image_size=24)
    (tmp_path / "ava" / "videos" / "test-1.mp4").write_bytes(b"nothing")
    (tmp_path / "ava" / "videos" / "train-2.mp4").write_bytes(b"nothing")
    (tmp_path / "ava" / "videos" / "test-2.mp4").unlink()
    config = small_config(data={"path": str(tmp_path / "ava")}, epochs=1)
    results = load_results(detect_once(config, tmp_path / "run"))
    assert set(results["failed"]) == {"test-1", "train-2"}
    assert results["missing_videos"] == ["test-2"]
    boxes = read_box_csv(tmp_path / "run" / "detections.csv", has_scores=True)
    assert {video for video, _ in boxes.keyframes} == {"test-0"}
    assert results["num_annotated_key_frames"] == 2  # one of three is excluded
    assert json.loads((tmp_path / "run" / "failed_videos.json").read_text()).keys() == {"train-2"}


def test_without_predicted_boxes_the_test_is_on_annotated_ones_and_says_so(tmp_path):
    write_ava(tmp_path / "ava", num_videos=2, image_size=24, with_person_boxes=False)
    config = small_config(data={"path": str(tmp_path / "ava")}, epochs=1)
    results = load_results(detect_once(config, tmp_path / "run"))
    assert results["test_box_source"] == results["train_box_source"] == "annotated boxes"


def test_layer_decay_slows_the_early_stages(tmp_path):
    changes = {}
    start = load_weights(detect_once(small_config(lr=1e-12, epochs=1), tmp_path / "start"))
    for decay in (1.0, 0.1):
        end = load_weights(
            detect_once(small_config(epochs=1, layer_decay=decay, weight_decay=0.0), tmp_path / str(decay))
        )
        changes[decay] = float((end["backbone.layers.0.0.weight"] - start["backbone.layers.0.0.weight"]).abs().mean())
    assert changes[0.1] < 0.02 * changes[1.0]


def test_presets_have_the_papers_schedules():
    assert DETECT_RECIPES.names() == ("slowfast", "vididi")
    from stillmotion.optim.optimizers import lr_at_epoch

    slowfast, vididi = DETECT_RECIPES.get("slowfast").optim, DETECT_RECIPES.get("vididi").optim
    assert [round(lr_at_epoch(slowfast, e), 6) for e in (6, 16, 24, 28)] == [0.3, 0.03, 0.003, 0.0003]
    assert (slowfast.epochs, slowfast.name) == (32, "sgd")
    assert [lr_at_epoch(vididi, e) for e in (0, 4.9, 5, 19)] == [0.01, 0.01, 0.005, 0.005]
    assert (vididi.epochs, vididi.name) == (20, "adamw")
    data = DETECT_RECIPES.get("vididi").data
    assert (data.num_frames, data.frame_stride) == (8, 4)
    assert np.isclose(DETECT_RECIPES.get("slowfast").data.min_box_score, 0.9)
