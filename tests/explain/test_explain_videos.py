import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.class_videos import write_class_folders
from support.html import assert_self_contained
from support.process import Command

from stillmotion.data.video import open_video
from stillmotion.encoders import load
from stillmotion.explain.config import SaliencyTarget
from stillmotion.explain.explain_videos import explain_videos
from stillmotion.training.pretrain.report import write_pretrain_page

FIGURES = {"eigenvalues.png", "amplitudes.png", "similarity.png", "lags.png"}


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    """Two videos of 14 frames."""
    return write_class_folders(tmp_path / "videos", videos_per_class=1, num_frames=14, image_size=24)


def test_a_video_is_explained_in_files_numbers_and_a_page(run, videos, tmp_path):
    out = tmp_path / "out"
    command = Command("explain", str(run), str(videos / "dark/0.mp4"), "--out", str(out), "--stride", "1", "--tubes")
    command.expect_success()
    assert command.stdout == f"written: {out}/report.html\n"
    films = {"grad-cam.png", "grad-cam.mp4", "tubes.png", "tubes.mp4"}
    assert {p.name for p in out.glob("[!.]*")} == FIGURES | films | {"results.json", "report.html"}
    results = json.loads((out / "results.json").read_text())
    (entry,) = results["videos"]
    assert entry["frame_indices"] == list(range(3, 11))
    assert np.shape(entry["eigenvalues"]) == (7, 2)
    assert np.shape(entry["amplitudes"]) == (7, 8, 2)
    assert np.shape(entry["similarity"]) == (8, 8)
    assert entry["similarity_by_lag"] == results["similarity_by_lag"]
    assert entry["similarity_by_lag"][0] == pytest.approx(1)
    assert set(entry["target_cosine"]) == {"whole", "static", "dynamic"}
    assert results["target"] == "the first clip of the same video"
    film = open_video(out / "grad-cam.mp4")
    assert (len(film), film.fps) == (8, 25)
    html = (out / "report.html").read_text()
    assert_self_contained(html)
    for title in ("Settings", "Koopman modes and temporal similarity", "Grad-CAM", "Saliency tubes"):
        assert f"<h2>{title}</h2>" in html


def test_a_folder_is_explained_video_by_video_and_failed_ones_are_named(run, videos, caplog):
    (videos / "light" / "torn.mp4").write_bytes(b"torn")
    results = explain_videos(load(run).with_input(stride=1), videos, run / "explain")
    assert [Path(entry["name"]).name for entry in results["videos"]] == ["0.mp4", "0.mp4"]
    assert [entry["files"]["grad-cam"]["filmstrip"] for entry in results["videos"]] == [
        "0/grad-cam.png",
        "0-2/grad-cam.png",
    ]
    assert {p.name for p in (run / "explain" / "0-2").iterdir()} == FIGURES | {"grad-cam.png", "grad-cam.mp4"}
    np.testing.assert_allclose(
        results["similarity_by_lag"], np.mean([entry["similarity_by_lag"] for entry in results["videos"]], axis=0)
    )
    count, reason = caplog.messages[-2:]
    assert count == "1 video of 3 not shown:"
    assert reason.startswith(f"  {videos}/light/torn.mp4: ")
    html = write_pretrain_page(run).read_text()
    assert_self_contained(html)
    for title in ("Losses", "Settings", "All videos", "Grad-CAM: 0.mp4"):
        assert f"<h2>{title}</h2>" in html
    assert "Not shown: " in html


def test_similarity_may_be_to_another_video_or_to_the_mean_of_a_class(run, videos, tmp_path):
    dark, light = videos / "dark/0.mp4", videos / "light/0.mp4"
    encoder = load(run).with_input(stride=1)
    itself = explain_videos(encoder, dark, tmp_path / "a", target=SaliencyTarget(reference_video=str(dark)))
    agreement = itself["videos"][0]["target_cosine"]
    assert [agreement["whole"], agreement["dynamic"]] == pytest.approx([1, 1], abs=1e-5)
    assert agreement["static"] in (0, pytest.approx(1, abs=1e-5))  # noise may have no static component
    report = explain_videos(encoder, dark, tmp_path / "b", target=SaliencyTarget(reference_video=str(light)))
    assert report["target"] == "the video 0.mp4"
    mean = explain_videos(encoder, dark, tmp_path / "c", target=SaliencyTarget(reference_folder=str(videos / "light")))
    assert mean["target"] == "the mean of 1 video in light"
    assert mean["videos"][0]["target_cosine"] == pytest.approx(report["videos"][0]["target_cosine"], abs=1e-5)


def test_a_run_of_drawn_videos_shows_some_of_them(run, tmp_path):
    results = explain_videos(load(run).with_input(image_size=48), "synthetic", tmp_path / "out", max_videos=2)
    assert len(results["videos"]) == 2
    with Image.open(tmp_path / "out" / results["videos"][1]["files"]["grad-cam"]["filmstrip"]) as strip:
        assert strip.width > strip.height


def test_what_cannot_be_explained_is_an_error_in_one_line(run, videos, tmp_path):
    torn = tmp_path / "torn.mp4"
    torn.write_bytes(b"torn")
    video, out = str(videos / "dark/0.mp4"), str(tmp_path / "out")
    (tmp_path / "file").write_text("")
    mistakes = {
        (str(torn), "--out", out): "torn.mp4: cannot be decoded",
        (str(tmp_path / "none.mp4"), "--out", out): "none.mp4: no such file",
        (video, "--out", out, "--stride", "2"): "14 frames; a clip of 8 frames at stride 2 spans 15",
        (video, "--out", out, "--num-frames", "14", "--stride", "1"): "the first clip must begin before the middle one",
        (video, "--out", out, "--image-size", "0"): "image_size is 0",
        (video, "--out", str(tmp_path / "file" / "x"), "--stride", "1"): "choose another --out",
        (*f"{video} --out {out} --reference-video {video} --reference-folder {videos}".split(),): "cannot be combined",
        (video, "--out", out, "--stride", "1", "--reference-folder", str(torn.parent / "file")): "list",
    }
    for typed, words in mistakes.items():  # in sequence, because they share a folder
        assert words in Command("explain", str(run), *typed).expect_error()
    assert not (tmp_path / "out" / "report.html").exists()
