import json
from functools import partial

import pytest
from support.class_videos import write_class_folders

from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import extract_features, load
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe import evaluate as probes
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
from stillmotion.evaluation.linear_probe.streaming_classifiers import SGDProbeConfig


def test_synthetic_probe_reports_every_factor_for_both_networks(run):
    result = evaluate_linear_probe(
        load(run),
        TrainTestConfig("synthetic", num_synthetic=60),
        LinearProbeConfig(num_clips=1, compare_untrained=True),
    )
    assert json.loads((run / "linear_probe.json").read_text()) == result.to_dict()
    assert list(result.chance_accuracy) == ["color", "shape", "brightness", "trajectory"]
    assert result.chance_accuracy["brightness"] == 0.5
    assert list(result.accuracy) == ["pretrained", "untrained"]
    for by_kind in result.accuracy.values():
        assert list(by_kind) == ["concat", "whole", "static", "dynamic", "motion"]
        assert by_kind["whole"]["color"]["top1"] > 0.6
    assert result.accuracy["pretrained"] != result.accuracy["untrained"]
    text = "\n".join(result.to_lines())
    assert "60 training and 60 test videos" in text
    assert "untrained" in text


def test_the_same_probe_gives_the_same_numbers(run):
    first, second = (
        evaluate_linear_probe(
            load(run),
            TrainTestConfig("synthetic", num_synthetic=30),
            LinearProbeConfig(num_clips=1),
            feature_kinds=("concat",),
        )
        for _ in range(2)
    )
    assert first == second


def test_a_set_with_a_split_is_probed_on_it(run, tmp_path):
    write_class_folders(tmp_path / "set" / "train", videos_per_class=6)
    write_class_folders(tmp_path / "set" / "test", videos_per_class=3, seed=1)
    encoder = load(run)
    result = evaluate_linear_probe(encoder, TrainTestConfig(tmp_path / "set"), LinearProbeConfig(num_clips=2))
    assert "official train and test split" in result.split_description
    assert (result.num_train_videos, result.num_test_videos) == (12, 6)
    splits = [VideoFolder(tmp_path / "set" / name) for name in ("train", "test")]
    x, tx = (extract_features(encoder, split, num_clips=2).vectors("concat", average=False) for split in splits)
    expected = logistic_probe(x, splits[0].labels["class"], tx, splits[1].labels["class"])
    assert result.accuracy["pretrained"]["concat"]["class"] == expected._asdict()


def test_a_set_without_a_split_is_parted_by_seed_and_broken_files_are_named(run, tmp_path):
    folder = write_class_folders(tmp_path / "set", videos_per_class=10)
    (folder / "dark" / "torn.mp4").write_bytes(b"not a video")
    (folder / "light" / "empty.mp4").touch()
    result = evaluate_linear_probe(
        load(run), TrainTestConfig(folder), LinearProbeConfig(num_clips=1), feature_kinds=("concat", "whole")
    )
    assert result.split_description == "random 70/30 split, seed 0, stratified"
    assert result.num_train_videos + result.num_test_videos == 20
    assert sorted(name.rsplit("/", 1)[1] for name in result.failed) == ["empty.mp4", "torn.mp4"]
    assert result.accuracy["pretrained"]["whole"]["class"]["top1"] == 1.0
    assert "2 unreadable videos skipped:" in result.to_lines()
    assert (
        evaluate_linear_probe(
            load(run), TrainTestConfig(folder, split_seed=1), LinearProbeConfig(num_clips=1), feature_kinds=("concat",)
        ).split_description
        != result.split_description
    )


@pytest.mark.parametrize(("preset", "clips", "crops"), [("k400", 10, 3), ("k400-3", 3, 1)])
def test_the_kinetics_presets_test_their_clips_and_keep_nothing(run, tmp_path, monkeypatch, preset, clips, crops):
    monkeypatch.setattr(probes, "SGDProbeConfig", partial(SGDProbeConfig, epochs=2, warmup_epochs=1))
    calls = []
    original = probes.run_streaming_probe
    monkeypatch.setattr(
        probes, "run_streaming_probe", lambda *args, **options: calls.append(args[3]) or original(*args, **options)
    )
    folder = write_class_folders(tmp_path / "set", videos_per_class=4, num_frames=10, image_size=32)
    (folder / "dark" / "torn.mp4").write_bytes(b"not a video")
    result = evaluate_linear_probe(
        load(run), TrainTestConfig(folder), LinearProbeConfig(preset=preset, precision="bf16"), feature_kinds=("whole",)
    )
    assert calls == [ClipViews(num_clips=clips, num_crops=crops, full_frame_crops=True, precision="bf16")]
    assert result.num_clips == clips
    assert result.num_train_videos + result.num_test_videos == 8
    assert result.accuracy["pretrained"]["whole"]["class"]["best_c"] is None
    assert not list((run / "features").iterdir())


def test_cached_features_are_reused_and_can_be_requested(run, tmp_path):
    folder = write_class_folders(tmp_path / "set", videos_per_class=3, num_frames=10, image_size=32)
    config = LinearProbeConfig(preset="k400-3", num_clips=1, cache_dir=str(tmp_path / "cache"))
    first, second = (
        evaluate_linear_probe(load(run), TrainTestConfig(folder), config, feature_kinds=("whole",)) for _ in range(2)
    )
    assert first == second
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_recipe_is_probed_untrained_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = evaluate_linear_probe(
        load("debug:k400-bod-simclr"),
        TrainTestConfig("synthetic", num_synthetic=20),
        LinearProbeConfig(num_clips=1),
        feature_kinds=("concat",),
    )
    assert list(result.accuracy) == ["untrained"]
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_probed_is_an_error(run, tmp_path):
    folder = write_class_folders(tmp_path / "set", videos_per_class=1)
    with pytest.raises(StillmotionError, match="has no labels"):
        evaluate_linear_probe(load(run), TrainTestConfig(folder / "dark"))
    with pytest.raises(StillmotionError, match="preset is 'huge'; choose one of logistic, k400, k400-3"):
        evaluate_linear_probe(load(run), TrainTestConfig(folder), LinearProbeConfig(preset="huge"))
    with pytest.raises(StillmotionError, match="the logistic preset has no SGD steps"):
        LinearProbeConfig(sgd_batch_size=32)
    with pytest.raises(StillmotionError, match="uses one fold, got --fold all"):
        evaluate_linear_probe(load(run), TrainTestConfig(folder, fold="all"))


def test_an_encoder_without_weights_is_not_called_pretrained():
    split = TrainTestConfig("synthetic", num_synthetic=8)
    report = evaluate_linear_probe(load("flow"), split, LinearProbeConfig(num_clips=1), feature_kinds=("whole",))
    assert list(report.accuracy) == ["no-weights"]


def test_synthetic_videos_for_a_run_of_real_ones_are_warned_of(run, caplog):
    config = json.loads((run / "config.json").read_text())
    config["data"]["path"] = "/data/mine"
    (run / "config.json").write_text(json.dumps(config))
    split = TrainTestConfig("synthetic", num_synthetic=8)
    evaluate_linear_probe(load(run), split, LinearProbeConfig(num_clips=1), feature_kinds=("whole",))
    assert "Probing on synthetic videos, but run was trained on /data/mine" in caplog.text
