"""Detection runs of a second: what is written, resuming, sharing a batch, and what stops a run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from ava_layout import write_ava
from exploding import explode
from safetensors.torch import load_file
from small_detection import detected, small
from small_run import stopping

from stillmotion.config import from_json, verb_of
from stillmotion.data.augment import AUGMENTS
from stillmotion.data.ava import read_boxes
from stillmotion.encoders import load
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.evaluate.detection import frame_ap, mean_ap
from stillmotion.recipes import recipe
from stillmotion.recipes.detect import DETECT
from stillmotion.tasks.detect import open_actions
from stillmotion.tasks.start import read_results
from stillmotion.train.log import read_metrics


def weights(folder):
    return load_file(folder / "checkpoint.safetensors")


def assert_same(a, b):
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert read_metrics(a) == read_metrics(b)
    assert (a / "detections.csv").read_text() == (b / "detections.csv").read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return detected(small(), tmp_path_factory.mktemp("runs") / "run")


def test_a_run_writes_scores_of_every_action_for_every_box_and_their_map(run):
    results, config = read_results(run), small()
    tests = open_actions(config.data, seed=0, train=False)
    found = read_boxes(run / "detections.csv", scored=True)
    assert len(found.keys) == results["detections"] == len(tests.frames.boxes) * len(tests.actions)
    assert set(read_metrics(run)) == {"loss/action", "gradient_norm", "lr", "epoch"}
    scores = frame_ap(tests.truth, found, tests.actions)
    assert results["mAP"] == pytest.approx(mean_ap(scores), abs=1e-3)  # the file rounds
    assert list(results["AP"]) == list(tests.actions.values())
    assert "predicted boxes" in results["test_boxes"]


def test_a_run_notes_its_network_and_the_clips_it_takes(run):
    assert verb_of(run) == "detect"
    noted = json.loads((run / "encoder.json").read_text())
    assert set(noted) == {"kind", "encoder", "config", "intake"}
    assert (noted["kind"], noted["encoder"]) == ("recipe", "debug-simclr")
    assert from_json(noted["config"]) == recipe("debug-simclr")
    preset = AUGMENTS[recipe("debug-simclr").data.augment]
    colours = {"mean": list(preset.mean), "std": list(preset.std)}
    assert noted["intake"] == {"frames": 4, "stride": 1, "size": 16} | colours


def test_a_run_is_an_encoder_of_its_weights_and_clips(run):
    encoder, saved = load(run), weights(run)
    assert encoder.origin.kind == "detect"
    assert (encoder.intake.frames, encoder.intake.stride, encoder.intake.size) == (4, 1, 16)
    for name, tensor in encoder.backbone.state_dict().items():
        assert torch.equal(tensor, saved[f"backbone.{name}"]), name


@pytest.mark.parametrize("stop", [1, 4])
def test_a_stopped_run_resumes_bit_for_bit(run, tmp_path, stop):
    with stopping(stop, 6):
        detected(small(), tmp_path / "stopped")
    assert not (tmp_path / "stopped" / "results.json").exists()
    assert_same(run, detected(small(), tmp_path / "stopped"))


def test_a_finished_run_is_left_as_it_is(run):
    before = {file.name: file.stat().st_mtime_ns for file in run.iterdir()}
    detected(small(), run)
    written = {"config.json", "encoder.json", "broken.json", "metrics.jsonl", "tensorboard", ".lock"}
    after = {file.name: file.stat().st_mtime_ns for file in run.iterdir()}
    assert all(after[name] == time for name, time in before.items() if name not in written)


def test_a_batch_in_parts_gives_the_gradient_of_the_whole_though_boxes_are_unevenly_shared(tmp_path):
    runs = []
    for parts in (1, 2, 4):
        config = small(head={"frozen": True}, train={"accumulate": parts}, epochs=1)
        runs.append(weights(detected(config, tmp_path / str(parts))))
    for other in runs[1:]:
        torch.testing.assert_close(other["classifier.weight"], runs[0]["classifier.weight"], atol=1e-6, rtol=1e-4)


def test_a_frozen_run_trains_the_classifier_alone(run, tmp_path):
    frozen = weights(detected(small(head={"frozen": True}), tmp_path / "frozen"))
    begun = weights(detected(small(head={"frozen": True}, lr=1e-12), tmp_path / "begun"))
    for name, value in frozen.items():
        assert torch.equal(value, begun[name]) == name.startswith("backbone."), name
    assert any(not torch.equal(value, begun[name]) for name, value in weights(run).items() if "backbone" in name)


def test_seeds_draw_other_networks_and_videos(run, tmp_path):
    other = detected(small(train={"seed": 1}, epochs=1), tmp_path / "other")
    assert not torch.equal(weights(run)["backbone.layers.0.0.weight"], weights(other)["backbone.layers.0.0.weight"])


def test_ava_is_read_and_unreadable_videos_are_named_and_left_out(tmp_path):
    write_ava(tmp_path / "ava", videos=3, size=24)
    (tmp_path / "ava" / "videos" / "test-1.mp4").write_bytes(b"nothing")
    (tmp_path / "ava" / "videos" / "train-2.mp4").write_bytes(b"nothing")
    (tmp_path / "ava" / "videos" / "test-2.mp4").unlink()
    config = small(data={"path": str(tmp_path / "ava")}, epochs=1)
    results = read_results(detected(config, tmp_path / "run"))
    assert set(results["broken"]) == {"test-1", "train-2"}
    assert results["missing"] == ["test-2"]
    found = read_boxes(tmp_path / "run" / "detections.csv", scored=True)
    assert {video for video, _ in found.keys} == {"test-0"}
    assert results["annotated_key_frames"] == 2  # of three, one is excluded
    assert json.loads((tmp_path / "run" / "broken.json").read_text()).keys() == {"train-2"}


def test_without_predicted_boxes_the_test_is_on_annotated_ones_and_says_so(tmp_path):
    write_ava(tmp_path / "ava", videos=2, size=24, persons=False)
    config = small(data={"path": str(tmp_path / "ava")}, epochs=1)
    results = read_results(detected(config, tmp_path / "run"))
    assert results["test_boxes"] == results["train_boxes"] == "annotated boxes"


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_weights(tmp_path, monkeypatch):
    explode(monkeypatch, after=1)
    with pytest.raises(NonFiniteError, match=r"step 2: .*not finite.*last good checkpoint.*of step 1"):
        detected(small(clip=0.0), tmp_path / "run")


def test_layer_decay_slows_the_early_stages(tmp_path):
    moved = {}
    start = weights(detected(small(lr=1e-12, epochs=1), tmp_path / "start"))
    for decay in (1.0, 0.1):
        end = weights(detected(small(epochs=1, layer_decay=decay, weight_decay=0.0), tmp_path / str(decay)))
        moved[decay] = float((end["backbone.layers.0.0.weight"] - start["backbone.layers.0.0.weight"]).abs().mean())
    assert moved[0.1] < 0.02 * moved[1.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, encoder=""), "no encoder given; add --encoder"),
        (lambda c: replace(c, encoder="nowhere"), "nowhere is neither a folder nor a recipe"),
        (lambda c: replace(c, data=replace(c.data, path="")), "no videos given; add --data"),
        (lambda c: replace(c, data=replace(c.data, path="nowhere")), "nowhere: no such folder"),
        (lambda c: replace(c, optim=replace(c.optim, batch=99)), "fewer than a batch of 99"),
        (lambda c: replace(c, train=replace(c.train, accumulate=3)), "choose a multiple of 3"),
        (lambda c: replace(c, data=replace(c.data, short_side=(8, 9))), r"cut to 16; raise --data\.short-side"),
    ],
)
def test_errors_say_what_to_do(tmp_path, change, message):
    with pytest.raises(StillmotionError, match=message):
        detected(change(small()), tmp_path / "run")


def test_another_run_in_the_folder_is_not_overwritten(run):
    with pytest.raises(StillmotionError, match=r"holds another run .*head\.dropout"):
        detected(small(head={"dropout": 0.2}), run)


def test_presets_have_the_papers_schedules():
    assert DETECT.names() == ("slowfast", "vididi", "debug")
    from stillmotion.optim.optimizers import learning_rate

    slowfast, vididi = DETECT.named("slowfast").optim, DETECT.named("vididi").optim
    assert [round(learning_rate(slowfast, e), 6) for e in (6, 16, 24, 28)] == [0.3, 0.03, 0.003, 0.0003]
    assert (slowfast.epochs, slowfast.name) == (32, "sgd")
    assert [learning_rate(vididi, e) for e in (0, 4.9, 5, 19)] == [0.01, 0.01, 0.005, 0.005]
    assert (vididi.epochs, vididi.name) == (20, "adamw")
    data = DETECT.named("vididi").data
    assert (data.frames, data.stride) == (8, 4)
    assert np.isclose(DETECT.named("slowfast").data.score, 0.9)
    with pytest.raises(StillmotionError, match="did you mean slowfast"):
        DETECT.named("slowfst")
