import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from debug_run import debug_run
from tiny_models import save_model

from stillmotion.data.sets import open_dataset
from stillmotion.errors import StillmotionError
from stillmotion.evaluate import cache
from stillmotion.evaluate.bootstrap import interval
from stillmotion.evaluate.controlled import Options, Stilled, evaluate_controlled, named_encoders
from stillmotion.evaluate.encoders import load_encoder
from stillmotion.evaluate.features import extract
from stillmotion.evaluate.linear import linear_probe

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
        "data": str(write_version(root / "plain", coloured)),
        "static": str(write_version(root / "static", lambda label, rng: [coloured(label, rng)[0]] * FRAMES)),
        "dynamic": str(write_version(root / "dynamic", moving_noise)),
    }


def quiet(text):
    pass


OPTIONS = Options(clips=1, resamples=200)
SPEC = "debug-bod-simclr@frames=8,stride=1"


def test_each_version_is_probed_with_intervals_and_single_frames_are_checked(sets, tmp_path):
    said = []
    named = [f"untrained={SPEC}", f"trained={debug_run('debug-bod-simclr')}@stride=1"]
    found = evaluate_controlled(named, out=tmp_path / "out", options=OPTIONS, say=said.append, **sets)
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == found
    assert list(found["encoders"]) == ["untrained", "trained"]
    for about in found["sets"].values():
        assert (about["train_videos"], about["test_videos"], about["majority"]) == (16, 12, 0.5)
    encoder, config = load_encoder(SPEC)
    for version, path in zip(found["sets"], sets.values(), strict=True):
        halves = [open_dataset(path, split=split) for split in ("train", "test")]
        x, tx = (extract(encoder, half, config.data).vector("whole", average=False) for half in halves)
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


def test_appearance_left_in_the_dynamic_set_is_found(sets, tmp_path):
    found = evaluate_controlled([SPEC], out=tmp_path, dynamic=sets["data"], options=OPTIONS, say=quiet)
    for probe in found["single_frame"].values():
        assert not probe["at_chance"]
        assert probe["top1"] == 1.0
        assert probe["guess"] == 0.5


def test_the_same_command_again_embeds_nothing(sets, tmp_path, monkeypatch):
    first = evaluate_controlled([SPEC], out=tmp_path, options=OPTIONS, say=quiet, **sets)
    monkeypatch.setattr(cache, "feature_batches", None)
    assert evaluate_controlled([SPEC], out=tmp_path, options=OPTIONS, say=quiet, **sets) == first


def test_progress_counts_the_videos_of_all_encoders_and_versions(sets, tmp_path):
    seen = []
    names = [SPEC, "debug-simclr@frames=8,stride=1"]
    evaluate_controlled(
        names, out=tmp_path, options=OPTIONS, say=quiet, progress=lambda *at: seen.append(at), **sets | {"data": None}
    )
    assert seen[-1] == (2 * 3 * 28, 2 * 3 * 28)  # static, dynamic, and single frames of the latter
    assert seen == sorted(seen)


def test_a_model_of_transformers_stands_beside_a_run(sets, tmp_path):
    model = save_model("vit", tmp_path / "model")
    options = Options(clips=1, kinds=("both", "whole"), resamples=50)
    found = evaluate_controlled(
        [f"{model}@frames=4,stride=2"], out=tmp_path, static=sets["static"], options=options, say=quiet
    )
    cells = found["accuracy"]["model (frames=4,stride=2)"]["static"]
    assert list(cells) == ["both", "whole"]
    assert cells["whole"]["top1"] == 1.0
    assert found["single_frame"] == found["difference"] == {}


def test_unreadable_videos_are_named_and_left_out(sets, tmp_path):
    root = write_version(tmp_path / "set", coloured)
    (root / "1-13" / "03.png").write_bytes(b"torn")
    found = evaluate_controlled([SPEC], out=tmp_path / "out", data=str(root), options=OPTIONS, say=quiet)
    assert [Path(name).name for name in found["broken"]] == ["1-13"]
    assert found["accuracy"]["debug-bod-simclr (frames=8,stride=1)"]["plain"]["whole"]["test_videos"] == 11


def test_a_stilled_set_shows_one_frame_as_often_as_asked(sets):
    videos = open_dataset(sets["data"])
    stilled = Stilled(videos)
    frames = stilled.video(3).frames([0, 5, 11])
    assert (frames == videos.video(3).frames([FRAMES // 2])).all()
    assert len(frames) == 3
    assert (len(stilled), len(stilled.video(3)), stilled.name(3)) == (28, FRAMES, videos.name(3))


def test_intervals_are_those_of_the_answers(sets, tmp_path):
    options = Options(clips=1, resamples=300, level=0.8, seed=2)
    found = evaluate_controlled([SPEC], out=tmp_path, dynamic=sets["dynamic"], options=options, say=quiet)
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


def test_what_cannot_be_evaluated_is_said_before_any_work(sets, tmp_path):
    (tmp_path / "file").touch()
    for change, message in [
        ({"encoders": []}, "no encoder to evaluate"),
        ({"encoders": ["laptop", str(tmp_path / "nowhere")]}, "neither a run folder"),
        ({"encoders": ["laptop", "laptop"]}, "laptop is given twice"),
        ({"encoders": ["pixels=laptop"]}, "may be called 'pixels'"),
        ({"data": None}, "no videos to evaluate on; give --data, --static or --dynamic"),
        ({"data": str(tmp_path / "nowhere")}, "no such file or folder"),
        ({"out": tmp_path / "file" / "out"}, "cannot write to"),
    ]:
        given = {"encoders": ["laptop"], "data": sets["data"], "out": tmp_path / "out"} | change
        with pytest.raises(StillmotionError, match=message):
            evaluate_controlled(given.pop("encoders"), **given)
    with pytest.raises(StillmotionError, match="kinds are"):
        Options(kinds=("half",))
