"""`detect` as a user types it."""

import json

import pytest
from safetensors.torch import load_file
from support.ava_like import write_ava
from support.process import Command, two_ranks

SMALL = (
    "--data.synthetic.num-train 4 --data.synthetic.num-test 2 --data.synthetic.image-size 24 --data.image-size 24 "
    "--data.train-short-side 24 24 --data.test-short-side 24 --data.num-frames 4 --optim.batch-size 4 "
    "--optim.epochs 2 --train.num-threads 1 --train.log-every-steps 1"
)


def test_the_debug_recipe_trains_tests_draws_and_reports(tmp_path):
    run = tmp_path / "run"
    command = Command("detect", "--debug", "--out", str(run), *SMALL.split(), "--num-box-videos", "1")
    assert "step 6/6" in command.expect_success()
    lines = command.stdout.splitlines()
    assert any(line.startswith("mAP") and "over" in line for line in lines)
    assert "tested on predicted boxes with a score of 0.9 or more, in 6 key frames" in lines
    assert {"results.json", "detections.csv", "report.html"} <= {file.name for file in run.iterdir()}
    assert {file.name for file in (run / "boxes").glob("test*")} == {"test-0.mp4", "test-0.png"}
    page = (run / "report.html").read_text()
    assert "Average precision" in page
    assert "data:video/mp4;base64" in page
    assert json.loads((run / "config.json").read_text())["recipe"] == "debug:slowfast"


@pytest.mark.slow
def test_two_processes_write_one_run(tmp_path):
    words = ("detect", "--debug", "--out", str(tmp_path / "run"), *SMALL.split())
    ranks = two_ranks(*words)
    for rank in ranks:
        rank.expect_success()
    assert "mAP" in ranks[0].stdout
    assert ranks[1].stdout == ""
    assert "classifier.weight" in load_file(tmp_path / "run" / "checkpoint.safetensors")
    assert (tmp_path / "run" / "report.html").exists()


def test_an_unreadable_video_of_ava_is_named_and_skipped(tmp_path):
    write_ava(tmp_path / "ava", num_videos=3, image_size=24)
    (tmp_path / "ava" / "videos" / "train-1.mp4").write_bytes(b"nothing")
    (tmp_path / "ava" / "videos" / "test-0.mp4").write_bytes(b"nothing")
    words = ("--debug", "--data", str(tmp_path / "ava"), "--out", str(tmp_path / "run"), *SMALL.split())
    command = Command("detect", *words, "--optim.epochs", "1")
    assert "Skipped unreadable video" in command.expect_success()
    assert "could not be read: train-1, test-0." in command.stdout


def test_names_of_recipes_are_listed():
    command = Command("detect", "--list-recipes")
    command.expect_success()
    assert [line.split()[0] for line in command.stdout.splitlines()] == ["slowfast", "vididi"]
