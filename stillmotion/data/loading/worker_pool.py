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

from stillmotion.data.loading.collate import Batch, BatchCollator, SampleKey
from stillmotion.errors import StillmotionError
from stillmotion.utils.processes import (
    JobFailed,
    ResultWithFile,
    Worker,
    WorkerDied,
    describe_exit_code,
    kill_workers,
    worker_context,
)

WORKER_TIMEOUT_ENV = "STILLMOTION_WORKER_TIMEOUT"  # seconds that a process may be at one video, in the environment
_TIMEOUT_SECONDS = 120.0
_STARTUP_SECONDS = 120.0  # seconds that a process may take to begin with its first video, at least
PREFETCH_FACTOR = 3  # batches for each process that are made or being made
_POLL_SECONDS = 0.5  # seconds between two looks at processes that are waited for
_MAX_DEATHS_PER_WORKER = 6  # ends of processes, for each there may be, after which it is not the videos that end them
_NO_VIDEO = -1


class BatchWorkerPool:
    """Processes that make batches. One that dies or does not answer is replaced, and the video it was at is named.

    That video is read again; if another process ends at it, too, it counts as unreadable.
    num_workers: at most; they start with the first batches and end with this object.
    """

    def __init__(self, collator: BatchCollator, num_workers: int) -> None:
        self._collator, self._num_workers = collator, num_workers
        self._workers: list[_BatchWorker] = []
        self._timeout = _read_timeout()
        self._call_id = 0
        self._deaths_by_video: Counter[int] = Counter()  # of processes, by the video that they were at
        self._consecutive_deaths = 0
        self._blocked: dict[int, str] = {}
        self._messages: list[str] = []
        self._pin_thread = ThreadPoolExecutor(1) if torch.cuda.is_available() else None
        # At exit before multiprocessing's own end, which sends a signal that workers ignore, and waits.
        Finalize(self, kill_workers, (self._workers,), exitpriority=10)

    @property
    def pids(self) -> list[int]:
        """Of the processes there are."""
        return [worker.process.pid for worker in self._workers]

    def imap(self, batch_keys: Iterable[Sequence[SampleKey]], *, on_wait: Callable[[], object]) -> Iterator[Batch]:
        """The batches of these keys, in order; those of an earlier call that were not taken are dropped.

        on_wait: called now and then while the next one is waited for. notes: of a batch, lines about processes.
        """
        self._call_id += 1
        left, begun = iter(batch_keys), 0
        done: dict[int, Any] = {}
        for number in count():
            while begun < number + PREFETCH_FACTOR * self._num_workers and (keys := next(left, None)) is not None:
                self._submit(_Job(self._call_id, begun, keys, self._blocked))
                begun += 1
            if number == begun:
                return
            while True:
                for job, result in self._poll_results(0 if number in done else _POLL_SECONDS):
                    if job.call_id == self._call_id:
                        done[job.batch_index] = self._pin(result)
                if number in done:
                    break
                on_wait()
            result = done.pop(number)
            if isinstance(result, JobFailed):
                raise result.error
            batch: Batch = result.result() if isinstance(result, Future) else result
            yield batch | {"warnings": self._take_messages()}

    def _submit(self, job: "_Job") -> None:
        if len(self._workers) < self._num_workers and all(worker.jobs for worker in self._workers):
            self._workers.append(_BatchWorker(self._collator))
        min(self._workers, key=lambda worker: len(worker.jobs)).submit(job)

    def _poll_results(self, seconds: float) -> Iterator[tuple["_Job", Batch | JobFailed]]:
        """What is there after so many seconds at most; dead and stuck processes are replaced."""
        started = time.monotonic()
        ready = wait([worker.connection for worker in self._workers], seconds)
        # Only what was waited here counts: the whole command may have been stopped, or have computed meanwhile.
        waited = min(time.monotonic() - started, seconds)
        for worker in list(self._workers):
            if worker.connection in ready:
                worker.idle_seconds = 0.0
                job, result = worker.receive() if worker.jobs else (None, worker.exit_status())
                if isinstance(result, WorkerDied):
                    self._replace(worker, describe_exit_code(result.exit_code), job)
                    continue
                self._consecutive_deaths = 0
                assert job is not None
                yield job, _unpack(result) if isinstance(result, ResultWithFile) else result
            elif worker.is_stuck(waited, self._timeout):
                self._replace(worker, f"did not answer for {int(worker.idle_seconds)} seconds")

    def _replace(self, worker: "_BatchWorker", description: str, job: "_Job | None" = None) -> None:
        """End a process, and give what it had to do to a new one. job: that it was at, if it has that no more."""
        jobs = [*([job] if job else []), *worker.jobs]
        video = worker.current_video if jobs else _NO_VIDEO
        self._workers.remove(worker)
        kill_workers([worker])
        self._consecutive_deaths += 1
        where = f" at {self._collator.dataset.name(video)}" if video != _NO_VIDEO else ""
        if worker.num_opened == 0:
            raise StillmotionError(
                f"a decoding process {description} before it read a video; --num-workers 0 decodes in this one"
            )
        if self._consecutive_deaths > _MAX_DEATHS_PER_WORKER * self._num_workers:
            advice = "look at the disk and the memory, or take fewer (--num-workers)"
            raise StillmotionError(f"a decoding process {description}{where}, as all those before it; {advice}")
        self._deaths_by_video[video] += 1
        if video != _NO_VIDEO and self._deaths_by_video[video] > 1:
            self._blocked[video] = (
                f"{self._collator.dataset.name(video)}: each process that read it ended; the last {description}"
            )
        else:
            self._messages.append(f"a decoding process {description}{where} and was replaced")
        if jobs:
            fresh = _BatchWorker(self._collator)
            self._workers.append(fresh)
            for again in jobs:
                fresh.submit(again._replace(blocked=self._blocked))

    def _pin(self, result: Batch | JobFailed) -> "Batch | JobFailed | Future[Batch]":
        """The batch in memory that a GPU can fetch it from by itself; it is put there while others are computed on."""
        if self._pin_thread is None or isinstance(result, JobFailed):
            return result
        return self._pin_thread.submit(pin_batch, result)

    def _take_messages(self) -> list[str]:
        said, self._messages = self._messages, []
        return said


def _read_timeout() -> float:
    text = os.environ.get(WORKER_TIMEOUT_ENV, str(_TIMEOUT_SECONDS))
    try:
        return float(text)
    except ValueError:
        raise StillmotionError(f"{WORKER_TIMEOUT_ENV} is {text!r}; it is a number of seconds, such as 120") from None


def pin_batch(batch: Batch) -> Batch:
    """The batch with its clips in pinned memory."""
    return batch | {"clips": batch["clips"].pin_memory()}


class _Job(NamedTuple):
    """round: which call of `batches` asked for it. number: its place there."""

    call_id: int
    batch_index: int
    keys: Sequence[SampleKey]
    blocked: Mapping[int, str]


class _BatchWorker(Worker[_Job]):
    """A process that makes batches. waited: seconds that this one waited for it since it was last seen to get on."""

    jobs: deque[_Job]

    def __init__(self, collator: BatchCollator) -> None:
        self._at = worker_context().RawArray("q", [0, _NO_VIDEO])
        self._seen, self.idle_seconds = 0, 0.0
        super().__init__(_BatchTask(collator, self._at))

    @property
    def num_opened(self) -> int:
        """How many it has begun to read."""
        return int(self._at[0])

    @property
    def current_video(self) -> int:
        """The number of the one that it is at."""
        return int(self._at[1])

    def is_stuck(self, seconds: float, timeout: float) -> bool:
        """Whether it has been at one video for too long. waited: since the last look."""
        got_on = self.num_opened != self._seen or not self.jobs
        self.idle_seconds, self._seen = 0.0 if got_on else self.idle_seconds + seconds, self.num_opened
        return self.idle_seconds > (timeout if self.num_opened else max(timeout, _STARTUP_SECONDS))

    def exit_status(self) -> WorkerDied:
        """How it ended, of which the closed connection tells."""
        self.process.join(_POLL_SECONDS)
        return WorkerDied(self.process.exitcode)


class _BatchTask:
    """What a process does. at: how many videos it has begun, and the number of the one it is at."""

    def __init__(self, collator: BatchCollator, at: Any) -> None:
        self.collator, self.at = collator, at

    def __call__(self, job: _Job) -> Batch | ResultWithFile:
        videos = self.collator.dataset
        videos.on_open, videos.blocked = self._on_open, job.blocked
        shelf = _SharedClipMemory()
        batch = self.collator(job.keys, stack=shelf.stack)
        self.at[1] = _NO_VIDEO
        return shelf.pack(batch)

    def _on_open(self, video: int) -> None:
        self.at[1] = video
        self.at[0] += 1


class _SharedClipMemory:
    """Memory that clips are put into and handed over in, as a file without a name: it ends with its last user."""

    def __init__(self) -> None:
        self._fd: int | None = None

    def stack(self, clips: list[Tensor]) -> Tensor:
        size = sum(clip.numel() * clip.element_size() for clip in clips)
        if not hasattr(os, "memfd_create") or size == 0:
            return torch.stack(clips)
        self._fd = os.memfd_create("clips")
        os.ftruncate(self._fd, size)
        shape = (len(clips), *clips[0].shape)
        return torch.stack(clips, out=_map_tensor(self._fd, size, clips[0].dtype, shape))

    def pack(self, batch: Batch) -> Batch | ResultWithFile:
        if self._fd is None:
            return batch
        clips: Tensor = batch["clips"]
        place = (clips.numel() * clips.element_size(), clips.dtype, tuple(clips.shape))
        return ResultWithFile(batch | {"clips": place}, self._fd)


def _unpack(parcel: ResultWithFile) -> Batch:
    try:
        return parcel.result | {"clips": _map_tensor(parcel.fd, *parcel.result["clips"])}
    finally:
        os.close(parcel.fd)


def _map_tensor(file: int, size: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(mmap.mmap(file, size), dtype=dtype).view(shape)
