"""The torch data set of clips for other training loops."""

import doctest
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from support.numbered_videos import write_numbered_video
from torch.utils.data import DataLoader

from stillmotion.data import ClipDataset, VideoFolder
from stillmotion.data.loading import torch_dataset
from stillmotion.errors import StillmotionError, VideoError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write four videos in two classes below the home folder."""
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    for i in range(4):
        write_numbered_video(tmp_path / "videos" / "ab"[i % 2] / f"{i}.mp4", num_frames=24)
    return tmp_path / "videos"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_folder_gives_batches_of_clips_to_a_torch_loader(folder: Path, workers: int) -> None:
    dataset = ClipDataset("~/videos", num_frames=16)
    batches = list(DataLoader(dataset, batch_size=3, shuffle=True, num_workers=workers))
    assert [tuple(batch.shape) for batch in batches] == [(3, 3, 16, 112, 112), (1, 3, 16, 112, 112)]
    assert {batch.dtype for batch in batches} == {torch.float32}
    assert dataset.videos.classes == {"class": ["a", "b"]}


def test_clips_are_random_and_fixed_by_the_seed_of_torch(folder: Path) -> None:
    dataset = ClipDataset(VideoFolder(folder), 4, size=16)
    torch.manual_seed(0)
    first = [dataset[1] for _ in range(6)]
    torch.manual_seed(0)
    assert all(torch.equal(clip, dataset[1]) for clip in first)
    assert any(not torch.equal(first[0], clip) for clip in first)


def test_several_clips_and_own_transforms(folder: Path) -> None:
    def gray(clip: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
        return torch.from_numpy(clip.mean(-1, dtype=np.float32))[None]

    assert ClipDataset(folder, 4, stride=2, size=16, num_clips=2, augment="slowfast")[0].shape == (2, 3, 4, 16, 16)
    assert ClipDataset(folder, 4, augment=gray)[0].shape == (1, 4, 48, 64)


def test_an_unreadable_video_is_an_error_or_replaced_with_a_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "a" / "0.mp4").write_bytes(b"nothing")
    with pytest.raises(VideoError, match=r"0\.mp4"):
        ClipDataset(folder)[0]
    assert ClipDataset(folder, 4, size=16, strict=False)[0].shape == (3, 4, 16, 16)
    assert "0.mp4" in caplog.text


def test_a_loop_over_the_data_set_ends_and_an_empty_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    assert len(list(ClipDataset(folder, 4, size=16))) == 4
    (tmp_path / "empty").mkdir()
    with pytest.raises(StillmotionError, match="empty"):
        ClipDataset(tmp_path / "empty")


def test_the_example_gives_what_it_says() -> None:
    results = doctest.testmod(torch_dataset)
    assert results.attempted > 0
    assert results.failed == 0
