"""Batches made by worker processes: ahead of time, in order, and whatever becomes of the processes."""

import mmap
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from multiprocessing.connection import wait
from multiprocessing.util import Finalize
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stillmotion.data.batches import Batch, BatchMaker, Key
from stillmotion.data.workers import Died, Failed, Parcel, Worker, end, how_it_ended, process_context
from stillmotion.errors import StillmotionError

PATIENCE = "STILLMOTION_PATIENCE"  # seconds that a process may be at one video, in the environment
_PATIENCE = 120.0
_START = 120.0  # seconds that a process may take to begin with its first video, at least
AHEAD = 3  # batches for each process that are made or being made
_LOOK = 0.5  # seconds between two looks at processes that are waited for
_MANY = 6  # ends of processes, for each there may be, after which it is not the videos that end them
_NOWHERE = -1


class Decoders:
    """Processes that make batches. One that dies or does not answer is replaced, and the video it was at is named.

    That video is read again; if another process ends at it, too, it counts as unreadable.
    processes: at most; they start with the first batches and end with this object.
    """

    def __init__(self, maker: BatchMaker, processes: int) -> None:
        self._maker, self._processes = maker, processes
        self._workers: list[_Decoder] = []
        self._patience = _patience()
        self._round = 0
        self._ends: Counter[int] = Counter()  # of processes, by the video that they were at
        self._in_a_row = 0
        self._spoilt: dict[int, str] = {}
        self._notes: list[str] = []
        self._pinning = ThreadPoolExecutor(1) if torch.cuda.is_available() else None
        # At exit before multiprocessing's own end, which sends a signal that workers ignore, and waits.
        Finalize(self, end, (self._workers,), exitpriority=10)

    @property
    def pids(self) -> list[int]:
        """Of the processes there are."""
        return [worker.process.pid for worker in self._workers]

    def batches(self, asked: Iterable[Sequence[Key]], *, meanwhile: Callable[[], object]) -> Iterator[Batch]:
        """The batches of these keys, in order; those of an earlier call that were not taken are dropped.

        meanwhile: called now and then while the next one is waited for. notes: of a batch, lines about processes.
        """
        self._round += 1
        left, begun = iter(asked), 0
        done: dict[int, Any] = {}
        for number in count():
            while begun < number + AHEAD * self._processes and (keys := next(left, None)) is not None:
                self._give(_Job(self._round, begun, keys, self._spoilt))
                begun += 1
            if number == begun:
                return
            while True:
                for job, result in self._arrived(0 if number in done else _LOOK):
                    if job.round == self._round:
                        done[job.number] = self._pinned(result)
                if number in done:
                    break
                meanwhile()
            result = done.pop(number)
            if isinstance(result, Failed):
                raise result.error
            batch: Batch = result.result() if isinstance(result, Future) else result
            yield batch | {"notes": self._said()}

    def _give(self, job: "_Job") -> None:
        if len(self._workers) < self._processes and all(worker.jobs for worker in self._workers):
            self._workers.append(_Decoder(self._maker))
        min(self._workers, key=lambda worker: len(worker.jobs)).give(job)

    def _arrived(self, seconds: float) -> Iterator[tuple["_Job", Batch | Failed]]:
        """What is there after so many seconds at most; dead and stuck processes are replaced."""
        started = time.monotonic()
        ready = wait([worker.connection for worker in self._workers], seconds)
        # Only what was waited here counts: the whole command may have been stopped, or have computed meanwhile.
        waited = min(time.monotonic() - started, seconds)
        for worker in list(self._workers):
            if worker.connection in ready:
                worker.waited = 0.0
                job, result = worker.take() if worker.jobs else (None, worker.died())
                if isinstance(result, Died):
                    self._replace(worker, how_it_ended(result.code), job)
                    continue
                self._in_a_row = 0
                assert job is not None
                yield job, _unpacked(result) if isinstance(result, Parcel) else result
            elif worker.is_stuck(waited, self._patience):
                self._replace(worker, f"did not answer for {int(worker.waited)} seconds")

    def _replace(self, worker: "_Decoder", how: str, job: "_Job | None" = None) -> None:
        """End a process, and give what it had to do to a new one. job: that it was at, if it has that no more."""
        jobs = [*([job] if job else []), *worker.jobs]
        video = worker.video if jobs else _NOWHERE
        self._workers.remove(worker)
        end([worker])
        self._in_a_row += 1
        where = f" at {self._maker.videos.name(video)}" if video != _NOWHERE else ""
        if worker.videos == 0:
            raise StillmotionError(f"a decoding process {how} before it read a video; --workers 0 decodes in this one")
        if self._in_a_row > _MANY * self._processes:
            advice = "look at the disk and the memory, or take fewer (--workers)"
            raise StillmotionError(f"a decoding process {how}{where}, as all those before it; {advice}")
        self._ends[video] += 1
        if video != _NOWHERE and self._ends[video] > 1:
            self._spoilt[video] = f"{self._maker.videos.name(video)}: each process that read it ended; the last {how}"
        else:
            self._notes.append(f"a decoding process {how}{where} and was replaced")
        if jobs:
            fresh = _Decoder(self._maker)
            self._workers.append(fresh)
            for again in jobs:
                fresh.give(again._replace(spoilt=self._spoilt))

    def _pinned(self, result: Batch | Failed) -> "Batch | Failed | Future[Batch]":
        """The batch in memory that a GPU can fetch it from by itself; it is put there while others are computed on."""
        if self._pinning is None or isinstance(result, Failed):
            return result
        return self._pinning.submit(pinned, result)

    def _said(self) -> list[str]:
        said, self._notes = self._notes, []
        return said


def _patience() -> float:
    text = os.environ.get(PATIENCE, str(_PATIENCE))
    try:
        return float(text)
    except ValueError:
        raise StillmotionError(f"{PATIENCE} is {text!r}; it is a number of seconds, such as 120") from None


def pinned(batch: Batch) -> Batch:
    """The batch with its clips in pinned memory."""
    return batch | {"clips": batch["clips"].pin_memory()}


class _Job(NamedTuple):
    """round: which call of `batches` asked for it. number: its place there."""

    round: int
    number: int
    keys: Sequence[Key]
    spoilt: Mapping[int, str]


class _Decoder(Worker[_Job]):
    """A process that makes batches. waited: seconds that this one waited for it since it was last seen to get on."""

    jobs: deque[_Job]

    def __init__(self, maker: BatchMaker) -> None:
        self._at = process_context().RawArray("q", [0, _NOWHERE])
        self._seen, self.waited = 0, 0.0
        super().__init__(_Make(maker, self._at))

    @property
    def videos(self) -> int:
        """How many it has begun to read."""
        return int(self._at[0])

    @property
    def video(self) -> int:
        """The number of the one that it is at."""
        return int(self._at[1])

    def is_stuck(self, waited: float, patience: float) -> bool:
        """Whether it has been at one video for too long. waited: since the last look."""
        got_on = self.videos != self._seen or not self.jobs
        self.waited, self._seen = 0.0 if got_on else self.waited + waited, self.videos
        return self.waited > (patience if self.videos else max(patience, _START))

    def died(self) -> Died:
        """How it ended, of which the closed connection tells."""
        self.process.join(_LOOK)
        return Died(self.process.exitcode)


class _Make:
    """What a process does. at: how many videos it has begun, and the number of the one it is at."""

    def __init__(self, maker: BatchMaker, at: Any) -> None:
        self.maker, self.at = maker, at

    def __call__(self, job: _Job) -> Batch | Parcel:
        videos = self.maker.videos
        videos.began, videos.spoilt = self._begin, job.spoilt
        shelf = _Shelf()
        batch = self.maker(job.keys, stack=shelf.stack)
        self.at[1] = _NOWHERE
        return shelf.parcel(batch)

    def _begin(self, video: int) -> None:
        self.at[1] = video
        self.at[0] += 1


class _Shelf:
    """Memory that clips are put into and handed over in, as a file without a name: it ends with its last user."""

    def __init__(self) -> None:
        self._file: int | None = None

    def stack(self, clips: list[Tensor]) -> Tensor:
        size = sum(clip.numel() * clip.element_size() for clip in clips)
        if not hasattr(os, "memfd_create") or size == 0:
            return torch.stack(clips)
        self._file = os.memfd_create("clips")
        os.ftruncate(self._file, size)
        shape = (len(clips), *clips[0].shape)
        return torch.stack(clips, out=_mapped(self._file, size, clips[0].dtype, shape))

    def parcel(self, batch: Batch) -> Batch | Parcel:
        if self._file is None:
            return batch
        clips: Tensor = batch["clips"]
        place = (clips.numel() * clips.element_size(), clips.dtype, tuple(clips.shape))
        return Parcel(batch | {"clips": place}, self._file)


def _unpacked(parcel: Parcel) -> Batch:
    try:
        return parcel.content | {"clips": _mapped(parcel.file, *parcel.content["clips"])}
    finally:
        os.close(parcel.file)


def _mapped(file: int, size: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(mmap.mmap(file, size), dtype=dtype).view(shape)
