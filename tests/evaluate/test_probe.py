import json

import pytest
from debug_videos import write_classes

from stillmotion.data.halves import Halves
from stillmotion.data.sets import FolderSet
from stillmotion.encoders import extract, load
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.linear import linear_probe
from stillmotion.evaluate.options import Probing
from stillmotion.evaluate.probe import probe, result_lines


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


def test_the_kinetics_preset_tests_ten_clips_of_three_crops(run, tmp_path):
    folder = write_classes(tmp_path / "set", videos=4)
    found = probe(load(run), Halves(folder), Probing(preset="k400"), kinds=("whole",))
    assert found["clips"] == 10
    assert found["accuracy"]["trained"]["whole"]["class"]["regularisation"] is None


def test_a_recipe_is_probed_untrained_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = probe(load("debug-bod-simclr"), Halves("synthetic", videos=20), Probing(clips=1), kinds=("both",))
    assert list(found["accuracy"]) == ["untrained"]
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_probed_is_said(run, tmp_path):
    folder = write_classes(tmp_path / "set", videos=1)
    with pytest.raises(StillmotionError, match="has no labels"):
        probe(load(run), Halves(folder / "dark"))
    with pytest.raises(StillmotionError, match="preset is 'huge'; choose one of small, k400"):
        probe(load(run), Halves(folder), Probing(preset="huge"))
    with pytest.raises(StillmotionError, match="a probe is of one"):
        probe(load(run), Halves(folder, fold="all"))
