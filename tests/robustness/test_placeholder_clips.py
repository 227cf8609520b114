"""Placeholders of unreadable videos are random other videos, and problems of videos are reported."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.memory_dataset import MemoryDataset
from support.small_pretrain import small_config, train

from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.loader import ClipLoader, iter_eval_batches
from stillmotion.data.transforms.augment import EvalCrop, build_augmentation
from stillmotion.data.video.reader import ArrayReader, VideoReader


class Cut(ArrayReader):
    """Write a truncated video."""

    expected_frames = 16


def half_unreadable_videos() -> MemoryDataset:
    """Write 64 videos: 16 to 47 cannot be read, 3 is short, and 5 is truncated."""
    videos: dict[str, VideoReader | None] = {}
    for i in range(64):
        pixels = np.random.default_rng(i).integers(0, 255, (2 if i == 3 else 8, 20, 24, 3), np.uint8)
        reader = Cut(pixels) if i == 5 else ArrayReader(pixels)
        videos[f"video-{i}"] = None if 16 <= i < 48 else reader
    return MemoryDataset(videos)


def clips(workers: int = 0) -> ClipLoader:
    return ClipLoader(
        TrainClipDataset(half_unreadable_videos(), 4, 2, 1, build_augmentation("none", size=16)),
        batch_size=8,
        num_workers=workers,
    )


def test_placeholders_of_many_broken_neighbours_are_spread_and_reproducible() -> None:
    orders = []
    for epoch in (0, 0, 1):
        batches = list(clips().iter_epoch(epoch))
        index = torch.cat([batch["index"] for batch in batches]).tolist()
        assert max(Counter(index).values()) <= 8  # at chance; earlier, all but one were the same video
        assert len(set(index)) == 32
        named = {name for batch in batches for name, _ in batch["failed"]}
        assert named == {f"video-{i}" for i in range(16, 48)}
        orders.append(index)
    assert orders[0] == orders[1]
    assert Counter(orders[0]) != Counter(orders[2])


@pytest.mark.parametrize("workers", [0, 1])
def test_short_and_truncated_videos_are_reported_in_an_evaluation(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    list(
        iter_eval_batches(
            EvalClipDataset(half_unreadable_videos(), 4, 2, 2, EvalCrop(16, 18)), batch_size=8, num_workers=workers
        )
    )
    assert caplog.messages == [
        "video-5: 8 of 16 frames can be read; truncated or damaged",
        "1 of 64 videos are shorter than a clip; frames are repeated",
    ]


def test_short_and_truncated_videos_are_reported_once_in_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stillmotion.training.pretrain.config.PretrainDataConfig.open", lambda self, **options: half_unreadable_videos()
    )
    train(small_config(overrides={"data.augment": "none", "optim.epochs": 2, "data.frame_stride": 2}), tmp_path)
    assert caplog.messages.count("video-5: 8 of 16 frames can be read; truncated or damaged") == 1
    assert caplog.messages.count("1 of 64 videos are shorter than a clip; frames are repeated") == 1


def test_fewer_videos_than_the_default_batch_size_reduce_it_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "stillmotion")
    config = small_config(overrides={"data.synthetic.num_videos": 12, "optim.batch_size": 32})
    train(replace(config, recipe="laptop"), tmp_path)
    assert "The data set has 12 videos, fewer than the batch size 32; using a batch size of 12" in caplog.text
    train(replace(config, recipe="laptop"), tmp_path)  # the same run, which has finished
