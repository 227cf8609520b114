import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from debug_run import debug_run
from tiny_models import save_model

from stillmotion.data.halves import Halves
from stillmotion.data.subset import Stilled
from stillmotion.encoders import extract, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate import cache
from stillmotion.evaluate.bootstrap import interval
from stillmotion.evaluate.controlled import evaluate_controlled, named_encoders
from stillmotion.evaluate.linear import linear_probe
from stillmotion.evaluate.options import Comparing

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
        "plain": Halves(write_version(root / "plain", coloured)),
        "static": Halves(write_version(root / "static", lambda label, rng: [coloured(label, rng)[0]] * FRAMES)),
        "dynamic": Halves(write_version(root / "dynamic", moving_noise)),
    }


def quiet(text):
    pass


OPTIONS = Comparing(clips=1, resamples=200)
TEXT = "debug-bod-simclr@frames=8,stride=1"


@pytest.fixture(scope="module")
def untrained():
    return {"untrained": load(TEXT)}


def test_each_version_is_probed_with_intervals_and_single_frames_are_checked(sets, tmp_path):
    said = []
    named = named_encoders([f"untrained={TEXT}", f"trained={debug_run('debug-bod-simclr')}@stride=1"])
    encoders = {name: load(text) for name, text in named.items()}
    found = evaluate_controlled(encoders, sets, tmp_path / "out", OPTIONS, say=said.append)
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
    assert found["encoders"] == named
    for about in found["sets"].values():
        assert (about["train_videos"], about["test_videos"], about["majority"]) == (16, 12, 0.5)
    assert list(found["sets"]) == list(sets)
    for version, given in sets.items():
        halves = [given.part(split).open() for split in ("train", "test")]
        x, tx = (extract(encoders["untrained"], half).vector("whole", average=False) for half in halves)
        wanted = linear_probe(x, halves[0].labels["class"], tx, halves[1].labels["class"])
        cell = found["accuracy"]["untrained"][version]["whole"]
        assert (cell["top1"], cell["regularisation"]) == (wanted.top1, wanted.regularisation)
        assert cell["top1_interval"][0] <= cell["top1"] <= cell["top1_interval"][1]
        gap = found["difference"]["trained"][version]["whole"]
        assert gap["top1"] == pytest.approx(found["accuracy"]["trained"][version]["whole"]["top1"] - cell["top1"])
    assert found["accuracy"]["untrained"]["plain"]["whole"]["top1"] == 1.0
    assert found["accuracy"]["untrained"]["static"]["whole"]["top1"] == 1.0
    assert list(found["single_frame"]) == ["pixels", "untrained", "trained"]
    assert found["single_frame"]["pixels"]["at_chance"]
    assert said[0].startswith("untrained: top-1 plain 1.000, static 1.000, dynamic ")


def test_appearance_left_in_the_dynamic_set_is_found(sets, untrained, tmp_path):
    found = evaluate_controlled(untrained, {"dynamic": sets["plain"]}, tmp_path, OPTIONS, say=quiet)
    for probe in found["single_frame"].values():
        assert not probe["at_chance"]
        assert probe["top1"] == 1.0
        assert probe["guess"] == 0.5


def test_the_same_command_again_embeds_nothing(sets, untrained, tmp_path, monkeypatch):
    first = evaluate_controlled(untrained, sets, tmp_path, OPTIONS, say=quiet)
    monkeypatch.setattr(cache, "shared_features", None)
    assert evaluate_controlled(untrained, sets, tmp_path, OPTIONS, say=quiet) == first


def test_progress_counts_the_videos_of_all_encoders_and_versions(sets, untrained, tmp_path):
    seen = []
    encoders = untrained | {"other": load("debug-simclr@frames=8,stride=1")}
    versions = {name: sets[name] for name in ("dynamic", "static")}
    evaluate_controlled(encoders, versions, tmp_path, OPTIONS, say=quiet, progress=lambda *at: seen.append(at))
    assert seen[-1] == (2 * 3 * 28, 2 * 3 * 28)  # static, dynamic, and single frames of the latter
    assert seen == sorted(seen)


def test_a_model_of_transformers_stands_beside_a_run(sets, tmp_path):
    model = save_model("vit", tmp_path / "model")
    options = Comparing(clips=1, by=("both", "whole"), resamples=50)
    encoders = {"model": load(f"{model}@frames=4,stride=2")}
    found = evaluate_controlled(encoders, {"static": sets["static"]}, tmp_path, options, say=quiet)
    cells = found["accuracy"]["model"]["static"]
    assert list(cells) == ["both", "whole"]
    assert cells["whole"]["top1"] == 1.0
    assert found["single_frame"] == found["difference"] == {}


def test_unreadable_videos_are_named_and_left_out(untrained, tmp_path):
    root = write_version(tmp_path / "set", coloured)
    (root / "1-13" / "03.png").write_bytes(b"torn")
    found = evaluate_controlled(untrained, {"plain": Halves(root)}, tmp_path / "out", OPTIONS, say=quiet)
    assert [Path(name).name for name in found["broken"]] == ["1-13"]
    assert found["accuracy"]["untrained"]["plain"]["whole"]["test_videos"] == 11


def test_a_stilled_set_shows_one_frame_as_often_as_asked(sets):
    videos = sets["plain"].part().open()
    stilled = Stilled(videos)
    frames = stilled.video(3).frames([0, 5, 11])
    assert (frames == videos.video(3).frames([FRAMES // 2])).all()
    assert len(frames) == 3
    assert (len(stilled), len(stilled.video(3)), stilled.name(3)) == (28, FRAMES, videos.name(3))


def test_intervals_are_those_of_the_answers(sets, untrained, tmp_path):
    options = Comparing(clips=1, resamples=300, level=0.8)
    found = evaluate_controlled(untrained, {"dynamic": sets["dynamic"]}, tmp_path, options, say=quiet)
    cell = found["single_frame"]["pixels"]
    right = np.arange(12) < round(12 * cell["top1"])
    low, high = interval(right, level=0.8, resamples=20_000)
    np.testing.assert_allclose(cell["top1_interval"], [low, high], atol=0.09)


def test_encoders_are_called_by_their_names_or_their_folders(run, tmp_path):
    other = tmp_path / "a=b"
    run.rename(other)
    assert named_encoders([str(other), "My net=laptop", "laptop@size=64", "laptop"]) == {
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
        (untrained, {}, "out", "no videos to evaluate on; give --data, --static or --dynamic"),
        (untrained, {"noise": sets["plain"]}, "out", "no version 'noise'; choose of plain, static, dynamic"),
        (untrained, {"plain": Halves(tmp_path / "nowhere")}, "out", "no such file or folder"),
        (untrained, {"plain": Halves(sets["plain"].path, fold="all")}, "out", "a probe is of one"),
        (untrained, plain, "file/out", "cannot write to"),
    ]:
        with pytest.raises(StillmotionError, match=message):
            evaluate_controlled(encoders, versions, tmp_path / out)
    assert not (tmp_path / "out").exists()
    for texts, message in [
        (["laptop", str(tmp_path / "nowhere")], "neither a folder nor a recipe"),
        (["laptop", "laptop"], "laptop is given twice"),
    ]:
        with pytest.raises(StillmotionError, match=message):
            named_encoders(texts)
    with pytest.raises(StillmotionError, match="no kind of embedding is asked"):
        Comparing(by=())
