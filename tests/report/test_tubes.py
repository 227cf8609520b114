"""Tubes of a class for several encoders, as a user types it."""

import json
from pathlib import Path

import pytest
import torch
from commands import Command
from debug_videos import write_classes
from PIL import Image
from self_contained import assert_self_contained
from small_run import small, trained

from stillmotion.data.video import open_video
from stillmotion.encoders import load
from stillmotion.report.tubes import explain_class


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    return write_classes(tmp_path / "videos", videos=3, frames=14, size=24)


def test_two_runs_stand_side_by_side_on_one_page(run, videos, tmp_path):
    strided = trained(small(changes={"method.model.keep_time": False}), tmp_path / "strided")
    out = tmp_path / "out"
    words = ["explain", str(run), str(videos / "dark"), "--class", "dark", "--labelled", str(videos), "--videos", "2"]
    command = Command(*words, "--beside", str(strided), "--stride", "1", "--out", str(out))
    command.succeed()
    assert command.answer == f"written: {out}/report.html\n"
    results = json.loads((out / "tubes.json").read_text())
    assert list(results["encoders"]) == [run.name, "strided"]
    for entry in results["videos"]:
        assert len(entry["clip"]) == results["frames"]
        assert all(0 <= said["probability"] <= 1 for said in entry["said"].values())
        film = open_video(out / entry["video"])
        assert film.frames([0]).shape[2] == 3 * 224 + 2 * 4
        with Image.open(out / entry["filmstrip"]) as strip:
            assert strip.size[0] > 500
    html = (out / "report.html").read_text()
    assert_self_contained(html)
    assert html.count("<h2>Saliency tubes") == 2


def test_a_network_that_makes_one_step_of_a_clip_has_tubes_and_the_same_encoder_twice_the_same(videos, tmp_path):
    strided = small(changes={"method.model.keep_time": False, "method.model.channels": (4, 4, 4)})
    encoder = load(trained(strided, tmp_path / "run")).shown(size=24)
    assert encoder.maps(still(encoder)).shape[1] == 1
    found = explain_class(
        [encoder, encoder], videos / "dark/0.mp4", tmp_path / "out", name="dark", labelled=str(videos)
    )
    first, second = found["videos"][0]["said"].values()
    assert first == second
    assert list(found["encoders"]) == ["run", "run (2)"]


def still(encoder):
    return torch.zeros(1, 3, encoder.intake.frames, encoder.intake.size, encoder.intake.size)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--beside", "debug-simclr"], "--beside is for the tubes of a class"),
        (["--labelled", "x"], "--labelled is for a class's row"),
        (["--class", "dark", "--class-mean", "x"], "are two targets"),
    ],
)
def test_options_that_do_not_go_together_are_refused(videos, tmp_path, more, message):
    command = Command("explain", "debug-simclr", str(videos), "--out", str(tmp_path / "out"), *more)
    assert command.wait() == 2
    assert message in command.words
    assert not (tmp_path / "out").exists()
