"""`finetune` as a user types it."""

import json

import pytest
from safetensors.torch import load_file
from support.class_videos import write_class_folders
from support.process import Command, two_ranks

WORDS = (
    "finetune --debug --encoder debug:k400-simclr --data.synthetic.num-videos 16 --data.synthetic.image-size 16 "
    "--data.videos-per-class 2 --data.image-size 16 --data.num-frames 4 --optim.batch-size 4 --train.num-threads 1 "
    "--train.log-every-steps 1"
)


def test_a_run_is_trained_tested_reported_and_an_encoder(tmp_path):
    run = str(tmp_path / "run")
    command = Command(*WORDS.split(), "--out", run, "--optim.epochs", "1")
    assert "step 2/2" in command.expect_success()
    assert "top-1" in command.stdout
    assert "report.html" in command.stdout
    assert json.loads((tmp_path / "run" / "results.json").read_text())["test_videos"] == 16
    page = tmp_path / "run" / "report.html"
    page.unlink()
    probe_command = Command("probe", run, "--num-synthetic", "16", "--num-clips", "1")
    report_command = Command("report", run)
    probe_command.expect_success()
    report_command.expect_success()
    assert "trained" in probe_command.stdout
    assert page.exists()


@pytest.mark.slow
def test_two_processes_write_one_run_and_folds_are_averaged(tmp_path):
    videos = write_class_folders(tmp_path / "videos", videos_per_class=6)
    rows = [
        f"{name}/{i}.mp4,{name},{'test' if i < 2 else 'train'},{'test' if i > 3 else 'train'}"
        for name in ("dark", "light")
        for i in range(6)
    ]
    (videos / "labels.csv").write_text("\n".join(["path,class,split1,split2", *rows]))
    more = ("--data", str(videos), "--data.target", "", "--data.videos-per-class", "0", "--optim.epochs", "1")
    ranks = two_ranks(*WORDS.split(), "--out", str(tmp_path / "run"), *more, "--folds", "1", "2")
    for rank in ranks:
        rank.expect_success()
    assert "mean    top-1" in ranks[0].stdout
    assert "top-1" not in ranks[1].stdout
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert list(results["folds"]) == ["1", "2"]
    assert load_file(tmp_path / "run" / "fold2" / "checkpoint.safetensors")["head.weight"].shape == (2, 32)
