"""Saliency tubes of a class for several encoders."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from support.class_videos import write_class_folders
from support.html import assert_self_contained
from support.process import Command
from support.small_pretrain import small_config, train

from stillmotion.data.video import open_video
from stillmotion.encoders import load
from stillmotion.explain.class_saliency import explain_class


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    return write_class_folders(tmp_path / "videos", videos_per_class=3, num_frames=14, image_size=24)


def test_two_runs_stand_side_by_side_on_one_page(run, videos, tmp_path):
    strided = train(small_config(overrides={"method.model.per_frame_features": False}), tmp_path / "strided")
    out = tmp_path / "out"
    words = f"explain {run} {videos / 'dark'} --class-name dark --probe-data {videos} --max-videos 2".split()
    command = Command(*words, "--compare-encoders", str(strided), "--stride", "1", "--out", str(out))
    command.expect_success()
    assert command.stdout == f"written: {out}/report.html\n"
    results = json.loads((out / "class_saliency.json").read_text())
    assert list(results["encoders"]) == [run.name, "strided"]
    for entry in results["videos"]:
        assert len(entry["frame_indices"]) == results["num_frames"]
        assert all(0 <= prediction["probability"] <= 1 for prediction in entry["predictions"].values())
        film = open_video(out / entry["files"]["tubes"]["video"])
        assert film.get_frames([0]).shape[2] == 3 * 224 + 2 * 4
        with Image.open(out / entry["files"]["tubes"]["filmstrip"]) as strip:
            assert strip.size[0] > 500
    html = (out / "report.html").read_text()
    assert_self_contained(html)
    assert html.count("<h2>Saliency tubes") == 2


def test_a_network_that_makes_one_step_of_a_clip_has_tubes_and_the_same_encoder_twice_the_same(videos, tmp_path):
    strided = small_config(
        overrides={"method.model.per_frame_features": False, "method.model.stage_channels": (4, 4, 4)}
    )
    encoder = load(train(strided, tmp_path / "run")).with_input(image_size=24)
    assert encoder.backbone(zero_clip(encoder)).shape[1] == 1
    result = explain_class(
        [encoder, encoder], videos / "dark/0.mp4", tmp_path / "out", class_name="dark", probe_data=str(videos)
    )
    first, second = result["videos"][0]["predictions"].values()
    assert first == second
    assert list(result["encoders"]) == ["run", "run (2)"]


def zero_clip(encoder):
    return torch.zeros(
        1, 3, encoder.input_config.num_frames, encoder.input_config.image_size, encoder.input_config.image_size
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--compare-encoders", "debug:k400-simclr"], "--compare-encoders shows the saliency of a class"),
        (["--probe-data", "."], "--probe-data needs --class-name"),
        (["--class-name", "dark", "--reference-folder", "."], "cannot be combined; give one"),
    ],
)
def test_options_that_do_not_go_together_are_refused(videos, tmp_path, more, message):
    command = Command("explain", "debug:k400-simclr", str(videos), "--out", str(tmp_path / "out"), *more)
    assert command.wait() == 2
    assert message in command.stderr
    assert not (tmp_path / "out").exists()
