"""C12: what teaches nothing is an error that says why, and what has changed is told."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from debug_videos import change_quietly, write_classes

from stillmotion.config import Config
from stillmotion.data.encode import write_mp4
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.recipes import recipe
from stillmotion.study.overrides import overridden
from stillmotion.tasks.pretrain import pretrain


def on(videos: Path, **changes: object) -> Config:
    settings = {"data.path": str(videos), "data.augment": "none", "optim.batch": 4, "optim.epochs": 2}
    return overridden(recipe("debug-simclr"), settings | {k.replace("_", ".", 1): v for k, v in changes.items()})


def test_black_videos_end_a_run_with_the_reason(tmp_path: Path) -> None:
    for number in range(8):
        black = np.zeros((20, 40, 40, 3), np.uint8)
        (tmp_path / "videos").mkdir(exist_ok=True)
        write_mp4(tmp_path / "videos" / f"{number}.mp4", black, size=(40, 40), fps=25, gop=8)
    with pytest.raises(StillmotionError, match=r"step \d+: every clip is of one colour throughout; look .*--data"):
        pretrain(on(tmp_path / "videos"), tmp_path / "run")


def test_one_video_eight_times_ends_a_run_with_the_reason(tmp_path: Path) -> None:
    source = write_classes(tmp_path / "source", videos=1) / "dark" / "0.mp4"
    (tmp_path / "videos").mkdir()
    for number in range(8):
        shutil.copy(source, tmp_path / "videos" / f"{number}.mp4")
    with pytest.raises(StillmotionError, match="all clips of a batch are the same; look whether the videos differ"):
        pretrain(on(tmp_path / "videos", data_frames=20, data_stride=1), tmp_path / "run")


def test_a_batch_of_one_has_nothing_to_contrast(tmp_path: Path) -> None:
    with pytest.raises(StillmotionError, match=r"a batch of 1 has no second video.*raise --optim.batch"):
        pretrain(overridden(recipe("debug-simclr"), {"optim.batch": 1}), tmp_path / "run")


def test_videos_that_changed_between_stop_and_resume_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    videos = write_classes(tmp_path / "videos", videos=4)
    config = on(videos, train_checkpoint_every=1)
    with monkeypatch.context() as patched:
        patched.setattr("stillmotion.train.process.StopRequest.agreed", lambda self: True)
        with pytest.raises(Interrupted):
            pretrain(config, tmp_path / "run")
    change_quietly(videos / "dark" / "0.mp4")
    (videos / "light" / "1.mp4").rename(videos / "light" / "9.mp4")
    capsys.readouterr()
    pretrain(config, tmp_path / "run")
    said = capsys.readouterr().err
    assert f"the videos are not those that {tmp_path / 'run'} was trained on: 1 videos more, 1 gone, 1 changed" in said
