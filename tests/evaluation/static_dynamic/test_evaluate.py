import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.stats import binomtest
from support.cached_run import cached_run
from support.progress import record_progress
from support.tiny_transformers import save_model

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.datasets.wrappers import FrozenFrameDataset
from stillmotion.encoders import extract_features, feature_cache, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe
from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig
from stillmotion.evaluation.static_dynamic.evaluate import (
    VersionSummary,
    _accuracy,
    _check_single_frame,
    _ProbeOutcome,
    evaluate_static_dynamic_sets,
    parse_named_specs,
)

FRAMES, SIZE = 12, 32


def write_version(root: Path, draw, *, train: int = 8, test: int = 6) -> Path:
    """Write videos of two classes as folders of frames, with a split; `draw` gets the class and a generator."""
    lines = ["path,label,split"]
    for label in (0, 1):
        for i in range(train + test):
            rng = np.random.default_rng((label, i))
            name = f"{label}-{i}"
            (root / name).mkdir(parents=True)
            for t, frame in enumerate(draw(label, rng)):
                cv2.imwrite(str(root / name / f"{t:02}.png"), frame)
            lines.append(f"{name},{label},{'train' if i < train else 'test'}")
    (root / "labels.csv").write_text("\n".join(lines))
    return root


def draw_colour(label, rng):
    level = 60 + 120 * label
    return rng.integers(level, level + 40, (FRAMES, SIZE, SIZE, 3), np.uint8)


def moving_noise(label, rng):
    """Noise that is static in class 0 and moves in class 1, so that single frames do not identify the class."""
    noise = rng.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    return [np.roll(noise, 3 * label * t, axis=1) for t in range(FRAMES)]


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    return {
        "plain": TrainTestConfig(write_version(root / "plain", draw_colour)),
        "static": TrainTestConfig(
            write_version(root / "static", lambda label, rng: [draw_colour(label, rng)[0]] * FRAMES)
        ),
        "dynamic": TrainTestConfig(write_version(root / "dynamic", moving_noise)),
    }


OPTIONS = StaticDynamicEvalConfig(num_clips=1, n_resamples=200)
ENCODER_SPEC = "debug:k400-bod-simclr@frames=8,stride=1"


@pytest.fixture(scope="module")
def untrained():
    return {"untrained": load(ENCODER_SPEC)}


def test_each_version_is_probed_with_intervals_and_single_frames_are_checked(sets, tmp_path, caplog):
    specs = parse_named_specs([f"untrained={ENCODER_SPEC}", f"trained={cached_run('k400-bod-simclr')}@stride=1"])
    encoders = {name: load(text) for name, text in specs.items()}
    caplog.set_level("INFO", "stillmotion")
    result = evaluate_static_dynamic_sets(encoders, sets, tmp_path / "out", OPTIONS)
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == result.to_dict()
    assert result.encoders == specs
    for summary in result.versions.values():
        assert (summary.num_train_videos, summary.num_test_videos, summary.majority_accuracy) == (16, 12, 0.5)
    assert list(result.versions) == list(sets)
    for version, config in sets.items():
        splits = [config.with_split(split).open() for split in ("train", "test")]
        x, tx = (extract_features(encoders["untrained"], videos).vectors("whole", average=False) for videos in splits)
        expected = logistic_probe(x, splits[0].labels["class"], tx, splits[1].labels["class"])
        cell = result.accuracy["untrained"][version]["whole"]
        assert (cell.top1.value, cell.best_c) == (expected.top1, expected.best_c)
        assert cell.top1.low <= cell.top1.value <= cell.top1.high
        gap = result.top1_difference["trained"][version]["whole"].value
        assert gap == pytest.approx(result.accuracy["trained"][version]["whole"].top1.value - cell.top1.value)
    assert result.accuracy["untrained"]["plain"]["whole"].top1.value == 1.0
    assert result.accuracy["untrained"]["static"]["whole"].top1.value == 1.0
    assert list(result.single_frame) == ["pixels", "untrained", "trained"]
    assert result.single_frame["pixels"].at_chance
    assert caplog.messages[0].startswith("untrained: top-1 plain 1.000, static 1.000, dynamic ")


def test_appearance_left_in_the_dynamic_set_is_found(sets, untrained, tmp_path):
    result = evaluate_static_dynamic_sets(untrained, {"dynamic": sets["plain"]}, tmp_path, OPTIONS)
    for check in result.single_frame.values():
        assert (check.at_chance, check.accuracy.top1.value, check.chance_level) == (False, 1.0, 0.5)


def test_the_same_command_again_embeds_nothing(sets, untrained, tmp_path, monkeypatch):
    first = evaluate_static_dynamic_sets(untrained, sets, tmp_path, OPTIONS)
    monkeypatch.setattr(feature_cache, "extract_features_distributed", None)
    assert evaluate_static_dynamic_sets(untrained, sets, tmp_path, OPTIONS) == first


def test_progress_counts_the_videos_of_all_encoders_and_versions(sets, untrained, tmp_path):
    encoders = untrained | {"other": load("debug:k400-simclr@frames=8,stride=1")}
    versions = {name: sets[name] for name in ("dynamic", "static")}
    with record_progress() as progress:
        evaluate_static_dynamic_sets(encoders, versions, tmp_path, OPTIONS)
    assert progress[-1] == (2 * 3 * 28, 2 * 3 * 28)  # static, dynamic, and single frames of dynamic
    assert progress == sorted(progress)


def test_a_transformers_model_is_compared_with_a_run(sets, tmp_path):
    model = save_model("vit", tmp_path / "model")
    options = StaticDynamicEvalConfig(num_clips=1, feature_kinds=("concat", "whole"), n_resamples=50)
    encoders = {"model": load(f"{model}@frames=4,stride=2")}
    result = evaluate_static_dynamic_sets(encoders, {"static": sets["static"]}, tmp_path, options)
    cells = result.accuracy["model"]["static"]
    assert list(cells) == ["concat", "whole"]
    assert cells["whole"].top1.value == 1.0
    assert result.single_frame == result.top1_difference == {}


def test_unreadable_videos_are_named_and_left_out(untrained, tmp_path):
    root = write_version(tmp_path / "set", draw_colour)
    (root / "1-13" / "03.png").write_bytes(b"torn")
    result = evaluate_static_dynamic_sets(untrained, {"plain": TrainTestConfig(root)}, tmp_path / "out", OPTIONS)
    assert [Path(name).name for name in result.failed] == ["1-13"]
    assert result.accuracy["untrained"]["plain"]["whole"].num_test_videos == 11


def test_a_stilled_set_shows_one_frame_as_often_as_asked(sets):
    videos = sets["plain"].with_split().open()
    stilled = FrozenFrameDataset(videos)
    frames = stilled.open_video(3).get_frames([0, 5, 11])
    assert (frames == videos.open_video(3).get_frames([FRAMES // 2])).all()
    assert len(frames) == 3
    assert (len(stilled), len(stilled.open_video(3)), stilled.name(3)) == (28, FRAMES, videos.name(3))


def test_intervals_are_those_of_the_answers(sets, untrained, tmp_path):
    options = StaticDynamicEvalConfig(num_clips=1, n_resamples=300, confidence_level=0.8)
    result = evaluate_static_dynamic_sets(untrained, {"dynamic": sets["dynamic"]}, tmp_path, options)
    top1 = result.single_frame["pixels"].accuracy.top1
    expected = binomtest(round(12 * top1.value), 12).proportion_ci(0.8, method="wilson")
    assert (top1.low, top1.high) == pytest.approx((expected.low, expected.high))


def test_nothing_is_concluded_from_six_videos():
    version = VersionSummary("there", "its own", 8, 6, 2, 0.5, 0.5)
    for num_correct, num_videos, at_chance in ((0, 6, None), (6, 6, None), (6, 12, True), (12, 12, False)):
        ranks = np.where(np.arange(num_videos) < num_correct, 0, 5)
        accuracy = _accuracy(_ProbeOutcome(ranks, np.arange(num_videos), 1.0), OPTIONS)
        assert accuracy.top1.low < accuracy.top1.high
        assert _check_single_frame(accuracy, version).at_chance is at_chance


def test_encoders_are_called_by_their_names_or_their_folders(run, tmp_path):
    folder = tmp_path / "a=b"
    run.rename(folder)
    assert parse_named_specs([str(folder), "My net=laptop", "laptop@size=64", "laptop"]) == {
        "a=b": str(folder),
        "My net": "laptop",
        "laptop (size=64)": "laptop@size=64",
        "laptop": "laptop",
    }


def test_what_cannot_be_evaluated_is_an_error_before_any_work(sets, untrained, tmp_path):
    (tmp_path / "file").touch()
    plain = {"plain": sets["plain"]}
    for encoders, versions, out, message in [
        ({}, plain, "out", "No encoder to evaluate"),
        ({"pixels": untrained["untrained"]}, plain, "out", "name 'pixels' is reserved"),
        (untrained, {}, "out", "No videos to evaluate on. Give --data, --static-data or --dynamic-data"),
        (untrained, {"noise": sets["plain"]}, "out", "Unknown version 'noise'; choose one of plain, static, dynamic"),
        (untrained, {"plain": TrainTestConfig(tmp_path / "nowhere")}, "out", "no such file or folder"),
        (untrained, {"plain": TrainTestConfig(sets["plain"].path, fold="all")}, "out", "uses one fold"),
        (untrained, plain, "file/out", "cannot write to"),
    ]:
        with pytest.raises(StillmotionError, match=message):
            evaluate_static_dynamic_sets(encoders, versions, tmp_path / out)
    assert not (tmp_path / "out").exists()
    for texts, message in [
        (["laptop", str(tmp_path / "nowhere")], "Unknown encoder"),
        (["laptop", "laptop"], "laptop is given twice"),
    ]:
        with pytest.raises(StillmotionError, match=message):
            parse_named_specs(texts)
    with pytest.raises(StillmotionError, match="No feature kind given"):
        StaticDynamicEvalConfig(feature_kinds=())
