"""Input without information is refused with a reason, and changed videos are reported."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.class_videos import alter_bytes_keep_mtime, write_class_folders

from stillmotion.data.video.writer import write_mp4
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe
from stillmotion.utils.typed_config import apply_overrides


def video_config(videos: Path, **changes: object) -> PretrainConfig:
    settings = {"data.path": str(videos), "data.augment": "none", "optim.batch_size": 4, "optim.epochs": 2}
    return apply_overrides(
        get_recipe("k400-simclr", debug=True), settings | {k.replace("_", ".", 1): v for k, v in changes.items()}
    )


def test_black_videos_end_a_run_with_the_reason(tmp_path: Path) -> None:
    for number in range(8):
        black = np.zeros((20, 40, 40, 3), np.uint8)
        (tmp_path / "videos").mkdir(exist_ok=True)
        write_mp4(tmp_path / "videos" / f"{number}.mp4", black, size=(40, 40), fps=25, gop_size=8)
    with pytest.raises(StillmotionError, match=r"step \d+: All clips have a single constant color.*--data"):
        pretrain(video_config(tmp_path / "videos"), tmp_path / "run")


def test_one_video_eight_times_ends_a_run_with_the_reason(tmp_path: Path) -> None:
    source = write_class_folders(tmp_path / "source", videos_per_class=1) / "dark" / "0.mp4"
    (tmp_path / "videos").mkdir()
    for number in range(8):
        shutil.copy(source, tmp_path / "videos" / f"{number}.mp4")
    with pytest.raises(StillmotionError, match="All clips of a batch are identical"):
        pretrain(video_config(tmp_path / "videos", data_num_frames=20, data_frame_stride=1), tmp_path / "run")


def test_videos_that_changed_between_stop_and_resume_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    videos = write_class_folders(tmp_path / "videos", videos_per_class=4)
    config = video_config(videos, train_checkpoint_every_steps=1)
    with monkeypatch.context() as patch:
        patch.setattr("stillmotion.training.runtime.StopRequest.is_requested_on_any_rank", lambda self: True)
        with pytest.raises(Interrupted):
            pretrain(config, tmp_path / "run")
    alter_bytes_keep_mtime(videos / "dark" / "0.mp4")
    (videos / "light" / "1.mp4").rename(videos / "light" / "9.mp4")
    caplog.clear()
    pretrain(config, tmp_path / "run")
    output = caplog.text
    assert f"The data set has changed since {tmp_path / 'run'} was started: 1 added, 1 removed, 1 changed" in output
