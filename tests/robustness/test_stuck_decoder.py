"""A decoder that hangs or dies is reported and replaced, and a run with hanging decoders can be stopped."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from support.process import Command, wait_for_steps
from support.process_tree import decoder_processes

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.collate import Batch
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.loading.worker_pool import WORKER_TIMEOUT_ENV
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.data.video.reader import ArrayReader, VideoReader
from stillmotion.errors import StillmotionError

pytestmark = pytest.mark.slow


class Waylaid(VideoDataset):
    """Videos of noise; opening the one numbered `at` sends the signal `by` to the process, or sleeps if it is 0."""

    labels: ClassVar[dict[str, np.ndarray]] = {}
    classes: ClassVar[dict[str, list[str]]] = {}

    def __init__(self, *, at: int = -1, by: int = 0) -> None:
        self.at, self.by = at, by

    def __len__(self) -> int:
        return 12

    def name(self, i: int) -> str:
        return f"video-{i}"

    def open_video(self, i: int) -> VideoReader:
        if i == self.at:
            os.kill(os.getpid(), self.by) if self.by else time.sleep(600)
        return ArrayReader(np.random.default_rng(i).integers(0, 255, (8, 20, 24, 3), np.uint8))


def loader(videos: Waylaid, *, workers: int) -> ClipLoader:
    return ClipLoader(
        TrainClipDataset(videos, 4, 2, 1, build_augmentation("none", size=16)), batch_size=2, num_workers=workers
    )


@pytest.fixture(autouse=True)
def short_worker_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKER_TIMEOUT_ENV, "1")


def concat_clips(batches: Iterator[Batch]) -> torch.Tensor:
    return torch.cat([batch["clips"] for batch in batches])


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGSTOP, "Decoding worker did not answer for"), (signal.SIGKILL, "was killed by signal 9")],
)
def test_a_decoder_that_stops_or_dies_is_named_and_replaced_and_the_clips_are_the_same(
    number: signal.Signals, words: str
) -> None:
    clips = loader(Waylaid(), workers=1)
    batches = clips.iter_epoch(0)
    next(batches)
    (first,) = clips.worker_pids
    list(batches)
    os.kill(first, number)  # whose queue is empty
    result = list(clips.iter_epoch(1))
    assert torch.equal(concat_clips(iter(result)), concat_clips(loader(Waylaid(), workers=0).iter_epoch(1)))
    (note,) = [note for batch in result for note in batch["warnings"]]
    assert words in note
    assert note.endswith("; restarted it")
    assert clips.worker_pids != [first]


@pytest.mark.parametrize(("by", "words"), [(0, "did not answer for"), (signal.SIGKILL, "was killed by signal 9")])
def test_a_video_that_no_decoder_gets_past_counts_as_unreadable_and_the_others_are_shown(by: int, words: str) -> None:
    result = list(loader(Waylaid(at=5, by=by), workers=2).iter_epoch(0))
    (note,) = [note for batch in result for note in batch["warnings"]]
    assert words in note
    assert "at video-5" in note
    ((name, reason),) = [entry for batch in result for entry in batch["failed"]]
    assert name == "video-5"
    assert words in reason
    index = torch.cat([batch["index"] for batch in result]).tolist()
    assert set(range(12)) - set(index) == {5}


def test_a_strict_run_ends_at_a_video_that_no_decoder_gets_past() -> None:
    videos = Waylaid(at=0, by=signal.SIGKILL)
    data = TrainClipDataset(videos, 4, 2, 1, build_augmentation("none", size=16), strict=True)
    with pytest.raises(StillmotionError, match=r"video-0: crashed every worker that read it; .*signal 9"):
        list(ClipLoader(data, batch_size=2, num_workers=1).iter_epoch(0))


def test_sigterm_ends_a_run_whose_decoders_are_stuck_and_saves_it(tmp_path: Path) -> None:
    size = "--data.synthetic.num-videos 32 --data.image-size 16 --data.num-frames 6 --optim.batch-size 8"
    more = "--optim.epochs 4000 --num-workers 1 --train.num-threads 1 --train.checkpoint-every-steps 100000"
    options = ("--recipe", "k400-simclr", "--debug", "--out", str(tmp_path), *size.split(), *more.split())
    patient = {WORKER_TIMEOUT_ENV: "600"}
    command = Command("pretrain", *options, environment=patient)
    wait_for_steps(command, tmp_path, 2)
    (stuck,) = decoder_processes(command.pid)
    os.kill(stuck, signal.SIGSTOP)
    time.sleep(1)  # the prefetched batches are soon used up
    command.send(signal.SIGTERM)
    assert command.wait() == 143
    (line,) = command.stderr.splitlines()[-1:]
    assert "Run the same command to resume" in line
    assert (tmp_path / "training_state.pt").exists()
    assert "Traceback" not in command.stderr
