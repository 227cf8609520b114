import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from support.cached_run import cached_run
from support.tiny_transformers import save_model

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.datasets.wrappers import FrozenFrameDataset
from stillmotion.encoders import extract_features, feature_cache, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.classifiers import logistic_probe
from stillmotion.evaluation.metrics.bootstrap import bootstrap_interval
from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig
from stillmotion.evaluation.static_dynamic.evaluate import evaluate_static_dynamic, parse_named_specs

FRAMES, SIZE = 12, 32


def write_version(root: Path, draw, *, train: int = 8, test: int = 6) -> Path:
    """Two classes of videos as folders of frames, with a split; `draw` is given class and generator."""
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


def coloured(label, rng):
    level = 60 + 120 * label
    return rng.integers(level, level + 40, (FRAMES, SIZE, SIZE, 3), np.uint8)


def moving_noise(label, rng):
    """Noise that stands still in class 0 and rolls on in class 1: no frame tells them apart."""
    noise = rng.integers(0, 256, (SIZE, SIZE, 3), np.uint8)
    return [np.roll(noise, 3 * label * t, axis=1) for t in range(FRAMES)]


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    return {
        "plain": TrainTestConfig(write_version(root / "plain", coloured)),
        "static": TrainTestConfig(
            write_version(root / "static", lambda label, rng: [coloured(label, rng)[0]] * FRAMES)
        ),
        "dynamic": TrainTestConfig(write_version(root / "dynamic", moving_noise)),
    }


def quiet(text):
    pass


OPTIONS = StaticDynamicEvalConfig(num_clips=1, n_resamples=200)
TEXT = "debug:k400-bod-simclr@frames=8,stride=1"


@pytest.fixture(scope="module")
def untrained():
    return {"untrained": load(TEXT)}


def test_each_version_is_probed_with_intervals_and_single_frames_are_checked(sets, tmp_path):
    said = []
    named = parse_named_specs([f"untrained={TEXT}", f"trained={cached_run('k400-bod-simclr')}@stride=1"])
    encoders = {name: load(text) for name, text in named.items()}
    found = evaluate_static_dynamic(encoders, sets, tmp_path / "out", OPTIONS, say=said.append)
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
    assert found["encoders"] == named
    for about in found["versions"].values():
        assert (about["train_videos"], about["test_videos"], about["majority"]) == (16, 12, 0.5)
    assert list(found["versions"]) == list(sets)
    for version, given in sets.items():
        halves = [given.part(split).open() for split in ("train", "test")]
        x, tx = (extract_features(encoders["untrained"], half).vectors("whole", average=False) for half in halves)
        wanted = logistic_probe(x, halves[0].labels["class"], tx, halves[1].labels["class"])
        cell = found["accuracy"]["untrained"][version]["whole"]
        assert (cell["top1"], cell["best_c"]) == (wanted.top1, wanted.best_c)
        assert cell["top1_interval"][0] <= cell["top1"] <= cell["top1_interval"][1]
        gap = found["top1_difference"]["trained"][version]["whole"]
        assert gap["top1"] == pytest.approx(found["accuracy"]["trained"][version]["whole"]["top1"] - cell["top1"])
    assert found["accuracy"]["untrained"]["plain"]["whole"]["top1"] == 1.0
    assert found["accuracy"]["untrained"]["static"]["whole"]["top1"] == 1.0
    assert list(found["single_frame"]) == ["pixels", "untrained", "trained"]
    assert found["single_frame"]["pixels"]["at_chance"]
    assert said[0].startswith("untrained: top-1 plain 1.000, static 1.000, dynamic ")


def test_appearance_left_in_the_dynamic_set_is_found(sets, untrained, tmp_path):
    found = evaluate_static_dynamic(untrained, {"dynamic": sets["plain"]}, tmp_path, OPTIONS, say=quiet)
    for probe in found["single_frame"].values():
        assert not probe["at_chance"]
        assert probe["top1"] == 1.0
        assert probe["chance_level"] == 0.5


def test_the_same_command_again_embeds_nothing(sets, untrained, tmp_path, monkeypatch):
    first = evaluate_static_dynamic(untrained, sets, tmp_path, OPTIONS, say=quiet)
    monkeypatch.setattr(feature_cache, "extract_features_distributed", None)
    assert evaluate_static_dynamic(untrained, sets, tmp_path, OPTIONS, say=quiet) == first


def test_progress_counts_the_videos_of_all_encoders_and_versions(sets, untrained, tmp_path):
    seen = []
    encoders = untrained | {"other": load("debug:k400-simclr@frames=8,stride=1")}
    versions = {name: sets[name] for name in ("dynamic", "static")}
    evaluate_static_dynamic(encoders, versions, tmp_path, OPTIONS, say=quiet, progress=lambda *at: seen.append(at))
    assert seen[-1] == (2 * 3 * 28, 2 * 3 * 28)  # static, dynamic, and single frames of the latter
    assert seen == sorted(seen)


def test_a_model_of_transformers_stands_beside_a_run(sets, tmp_path):
    model = save_model("vit", tmp_path / "model")
    options = StaticDynamicEvalConfig(num_clips=1, feature_kinds=("concat", "whole"), n_resamples=50)
    encoders = {"model": load(f"{model}@frames=4,stride=2")}
    found = evaluate_static_dynamic(encoders, {"static": sets["static"]}, tmp_path, options, say=quiet)
    cells = found["accuracy"]["model"]["static"]
    assert list(cells) == ["concat", "whole"]
    assert cells["whole"]["top1"] == 1.0
    assert found["single_frame"] == found["top1_difference"] == {}


def test_unreadable_videos_are_named_and_left_out(untrained, tmp_path):
    root = write_version(tmp_path / "set", coloured)
    (root / "1-13" / "03.png").write_bytes(b"torn")
    found = evaluate_static_dynamic(untrained, {"plain": TrainTestConfig(root)}, tmp_path / "out", OPTIONS, say=quiet)
    assert [Path(name).name for name in found["failed"]] == ["1-13"]
    assert found["accuracy"]["untrained"]["plain"]["whole"]["test_videos"] == 11


def test_a_stilled_set_shows_one_frame_as_often_as_asked(sets):
    videos = sets["plain"].part().open()
    stilled = FrozenFrameDataset(videos)
    frames = stilled.open_video(3).get_frames([0, 5, 11])
    assert (frames == videos.video(3).frames([FRAMES // 2])).all()
    assert len(frames) == 3
    assert (len(stilled), len(stilled.open_video(3)), stilled.name(3)) == (28, FRAMES, videos.name(3))


def test_intervals_are_those_of_the_answers(sets, untrained, tmp_path):
    options = StaticDynamicEvalConfig(num_clips=1, n_resamples=300, confidence_level=0.8)
    found = evaluate_static_dynamic(untrained, {"dynamic": sets["dynamic"]}, tmp_path, options, say=quiet)
    cell = found["single_frame"]["pixels"]
    right = np.arange(12) < round(12 * cell["top1"])
    low, high = bootstrap_interval(right, confidence_level=0.8, n_resamples=20_000)
    np.testing.assert_allclose(cell["top1_interval"], [low, high], atol=0.09)


def test_encoders_are_called_by_their_names_or_their_folders(run, tmp_path):
    other = tmp_path / "a=b"
    run.rename(other)
    assert parse_named_specs([str(other), "My net=laptop", "laptop@size=64", "laptop"]) == {
        "a=b": str(other),
        "My net": "laptop",
        "laptop (size=64)": "laptop@size=64",
        "laptop": "laptop",
    }


def test_what_cannot_be_evaluated_is_said_before_any_work(sets, untrained, tmp_path):
    (tmp_path / "file").touch()
    plain = {"plain": sets["plain"]}
    for encoders, versions, out, message in [
        ({}, plain, "out", "no encoder to evaluate"),
        ({"pixels": untrained["untrained"]}, plain, "out", "may be called 'pixels'"),
        (untrained, {}, "out", "no videos to evaluate on; give --data, --static-data or --dynamic-data"),
        (untrained, {"noise": sets["plain"]}, "out", "no version 'noise'; choose of plain, static, dynamic"),
        (untrained, {"plain": TrainTestConfig(tmp_path / "nowhere")}, "out", "no such file or folder"),
        (untrained, {"plain": TrainTestConfig(sets["plain"].path, fold="all")}, "out", "a probe is of one"),
        (untrained, plain, "file/out", "cannot write to"),
    ]:
        with pytest.raises(StillmotionError, match=message):
            evaluate_static_dynamic(encoders, versions, tmp_path / out)
    assert not (tmp_path / "out").exists()
    for texts, message in [
        (["laptop", str(tmp_path / "nowhere")], "neither a folder nor a recipe"),
        (["laptop", "laptop"], "laptop is given twice"),
    ]:
        with pytest.raises(StillmotionError, match=message):
            parse_named_specs(texts)
    with pytest.raises(StillmotionError, match="no kind of embedding is asked"):
        StaticDynamicEvalConfig(feature_kinds=())
