"""Any error of one video leaves training and evaluation clips and copies of the others unchanged."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.failing_videos import ERRORS

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.transcode.prepare import PrepareConfig, prepare_dataset
from stillmotion.data.transforms.augment import EvalCrop, build_augmentation
from stillmotion.data.video.reader import ArrayReader
from stillmotion.errors import StillmotionError, VideoError


class FailingVideos(VideoDataset):
    """Return one video per error, which is raised when it is opened, and two readable videos."""

    def __len__(self) -> int:
        return len(ERRORS) + 2

    def open_video(self, i: int) -> ArrayReader:
        if i < len(ERRORS):
            raise ERRORS[i]
        return ArrayReader(np.full((8, 32, 32, 3), i, np.uint8))

    def name(self, i: int) -> str:
        return f"video {i}"


def train_clips(videos: VideoDataset, **options: Any) -> TrainClipDataset:
    return TrainClipDataset(videos, 4, 1, 1, build_augmentation("synthetic", size=16), **options)


def test_training_replaces_a_video_that_raises_anything() -> None:
    clips = train_clips(FailingVideos())
    for i in range(len(ERRORS)):
        item = clips[i]
        assert item["index"] >= len(ERRORS)
        name, reason = item["failed"][0]
        assert name == f"video {i}"
        assert reason.startswith(f"video {i}: ")
    with pytest.raises(VideoError, match="video 1: not enough memory"):
        train_clips(FailingVideos(), strict=True)[1]


def test_evaluation_leaves_out_a_video_that_raises_anything() -> None:
    clips = EvalClipDataset(FailingVideos(), 4, 1, 1, EvalCrop(16, 16))
    failed = [name for i in range(len(clips)) for name, _ in clips[i]["failed"]]
    assert failed == [f"video {i}" for i in range(len(ERRORS))]
    assert clips[len(ERRORS)]["clips"].shape == (1, 3, 4, 16, 16)


def test_prepare_records_a_video_that_raises_anything(tmp_path: Path) -> None:
    entries = prepare_dataset(FailingVideos(), tmp_path / "out", PrepareConfig(short_side=16, format="jpeg"))
    assert [bool(entry.error) for entry in entries] == [True] * len(ERRORS) + [False] * 2
    assert entries[1].error == "video 1: not enough memory"


def test_an_augmentation_that_always_fails_is_raised_and_does_not_read_every_video() -> None:
    read = []

    class Videos(FailingVideos):
        def __len__(self) -> int:
            return 1000

        def open_video(self, i: int) -> ArrayReader:
            read.append(i)
            return super().open_video(len(ERRORS))

    def broken(clip: np.ndarray, rng: np.random.Generator) -> Any:
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        TrainClipDataset(Videos(), 4, 1, 1, broken)[0]
    assert len(read) == 20


def test_errors_of_the_configuration_stop_at_once() -> None:
    class Videos(FailingVideos):
        def open_video(self, i: int) -> ArrayReader:
            raise StillmotionError("STILLMOTION_DECODER is 'x'")

    with pytest.raises(StillmotionError, match="DECODER"):
        train_clips(Videos())[0]
