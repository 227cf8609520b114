import json
from functools import partial

import pytest
from debug_videos import write_classes

from stillmotion.data.halves import Halves
from stillmotion.data.sets import FolderSet
from stillmotion.encoders import extract, load
from stillmotion.encoders.features import Views
from stillmotion.errors import StillmotionError
from stillmotion.evaluate import probe as probes
from stillmotion.evaluate.linear import linear_probe
from stillmotion.evaluate.options import Probing
from stillmotion.evaluate.probe import probe, result_lines
from stillmotion.evaluate.sgd import Sgd


def test_synthetic_probe_tells_every_factor_of_both_networks(run):
    found = probe(load(run), Halves("synthetic", videos=60), Probing(clips=1, untrained=True))
    assert json.loads((run / "probe.json").read_text()) == found
    assert list(found["chance"]) == ["color", "shape", "brightness", "trajectory"]
    assert found["chance"]["brightness"] == 0.5
    assert list(found["accuracy"]) == ["trained", "untrained"]
    for by_kind in found["accuracy"].values():
        assert list(by_kind) == ["both", "whole", "static", "dynamic", "motion"]
        assert by_kind["whole"]["color"]["top1"] > 0.6
    assert found["accuracy"]["trained"] != found["accuracy"]["untrained"]
    text = "\n".join(result_lines(found))
    assert "60 training and 60 test videos" in text
    assert "untrained" in text


def test_the_same_probe_gives_the_same_numbers(run):
    first, again = (
        probe(load(run), Halves("synthetic", videos=30), Probing(clips=1), kinds=("both",)) for _ in range(2)
    )
    assert first == again


def test_a_set_with_a_split_is_probed_on_it(run, tmp_path):
    write_classes(tmp_path / "set" / "train", videos=6)
    write_classes(tmp_path / "set" / "test", videos=3, seed=1)
    encoder = load(run)
    found = probe(encoder, Halves(tmp_path / "set"), Probing(clips=2))
    assert "own train and test split" in found["split"]
    assert (found["train_videos"], found["test_videos"]) == (12, 6)
    sides = [FolderSet(tmp_path / "set" / name) for name in ("train", "test")]
    x, tx = (extract(encoder, side, clips=2).vector("both", average=False) for side in sides)
    wanted = linear_probe(x, sides[0].labels["class"], tx, sides[1].labels["class"])
    assert found["accuracy"]["trained"]["both"]["class"] == wanted._asdict()


def test_a_set_without_a_split_is_parted_by_seed_and_broken_files_are_named(run, tmp_path):
    folder = write_classes(tmp_path / "set", videos=10)
    (folder / "dark" / "torn.mp4").write_bytes(b"not a video")
    (folder / "light" / "empty.mp4").touch()
    found = probe(load(run), Halves(folder), Probing(clips=1), kinds=("both", "whole"))
    assert found["split"] == "parted 70/30 by seed 0, every class alike"
    assert found["train_videos"] + found["test_videos"] == 20
    assert sorted(name.rsplit("/", 1)[1] for name in found["broken"]) == ["empty.mp4", "torn.mp4"]
    assert found["accuracy"]["trained"]["whole"]["class"]["top1"] == 1.0
    assert "2 unreadable videos were skipped:" in result_lines(found)
    assert probe(load(run), Halves(folder, seed=1), Probing(clips=1), kinds=("both",))["split"] != found["split"]


@pytest.mark.parametrize(("preset", "clips", "crops"), [("k400", 10, 3), ("k400-3", 3, 1)])
def test_the_kinetics_presets_test_their_clips_and_keep_nothing(run, tmp_path, monkeypatch, preset, clips, crops):
    monkeypatch.setattr(probes, "Sgd", partial(Sgd, epochs=2, warmup_epochs=1))
    seen = []
    streamed = probes.streamed_probe
    monkeypatch.setattr(
        probes, "streamed_probe", lambda *given, **named: seen.append(given[3]) or streamed(*given, **named)
    )
    folder = write_classes(tmp_path / "set", videos=4, frames=10, size=32)
    (folder / "dark" / "torn.mp4").write_bytes(b"not a video")
    found = probe(load(run), Halves(folder), Probing(preset=preset, precision="bf16"), kinds=("whole",))
    assert seen == [Views(clips=clips, crops=crops, full=True, precision="bf16")]
    assert found["clips"] == clips
    assert found["train_videos"] + found["test_videos"] == 8
    assert found["accuracy"]["trained"]["whole"]["class"]["regularisation"] is None
    assert not list((run / "features").iterdir())


def test_cached_features_are_shown_again_and_given_for_the_asking(run, tmp_path):
    folder = write_classes(tmp_path / "set", videos=3, frames=10, size=32)
    asked = Probing(preset="k400-3", clips=1, cache=str(tmp_path / "cache"))
    first, again = (probe(load(run), Halves(folder), asked, kinds=("whole",)) for _ in range(2))
    assert first == again
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_recipe_is_probed_untrained_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = probe(load("debug-bod-simclr"), Halves("synthetic", videos=20), Probing(clips=1), kinds=("both",))
    assert list(found["accuracy"]) == ["untrained"]
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_probed_is_said(run, tmp_path):
    folder = write_classes(tmp_path / "set", videos=1)
    with pytest.raises(StillmotionError, match="has no labels"):
        probe(load(run), Halves(folder / "dark"))
    with pytest.raises(StillmotionError, match="preset is 'huge'; choose one of small, k400, k400-3"):
        probe(load(run), Halves(folder), Probing(preset="huge"))
    with pytest.raises(StillmotionError, match="small takes no steps"):
        Probing(sgd_batch=32)
    with pytest.raises(StillmotionError, match="a probe is of one"):
        probe(load(run), Halves(folder, fold="all"))
