"""Decoding worker processes that survive crashes and hangs."""

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
from stillmotion.utils.worker_processes import (
    JobFailed,
    ResultWithFile,
    Worker,
    WorkerDied,
    describe_exit_code,
    kill_workers,
    worker_context,
)

WORKER_TIMEOUT_ENV = "STILLMOTION_WORKER_TIMEOUT"  # environment variable: seconds that a worker may take for a video
_TIMEOUT_SECONDS = 120.0
_STARTUP_SECONDS = 120.0  # minimum timeout for the first video of a worker
PREFETCH_FACTOR = 3  # batches per worker that are built ahead
_POLL_SECONDS = 0.5
_MAX_DEATHS_PER_WORKER = 6  # more consecutive deaths are not the fault of single videos
_NO_VIDEO = -1


class BatchWorkerPool:
    """Worker processes that build batches in order.

    A worker that crashes or hangs is replaced; a video that crashes two workers counts as failed.

    Args:
        collator: Builds batches.
        num_workers: Maximum number of workers; they start with the first batches and end with this object.
    """

    def __init__(self, collator: BatchCollator, num_workers: int) -> None:
        self._collator, self._num_workers = collator, num_workers
        self._workers: list[_BatchWorker] = []
        self._timeout = _read_timeout()
        self._call_id = 0
        self._deaths_by_video: Counter[int] = Counter()
        self._consecutive_deaths = 0
        self._blocked: dict[int, str] = {}
        self._messages: list[str] = []
        self._pin_thread = ThreadPoolExecutor(1) if torch.cuda.is_available() else None
        # Must run before the exit handler of multiprocessing, which sends a signal that workers ignore, and waits.
        Finalize(self, kill_workers, (self._workers,), exitpriority=10)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers]

    def imap(self, batch_keys: Iterable[Sequence[SampleKey]], *, on_wait: Callable[[], object]) -> Iterator[Batch]:
        """Yield the batches of these keys, in order; batches of an earlier call are dropped.

        A batch also has warnings: messages about workers.

        Args:
            batch_keys: Keys of the items of each batch.
            on_wait: Callback while waiting for the next batch.
        """
        self._call_id += 1
        remaining, num_submitted = iter(batch_keys), 0
        done: dict[int, Any] = {}
        for index in count():
            limit = index + PREFETCH_FACTOR * self._num_workers
            while num_submitted < limit and (keys := next(remaining, None)) is not None:
                self._submit(_Job(self._call_id, num_submitted, keys, self._blocked))
                num_submitted += 1
            if index == num_submitted:
                return
            while True:
                for job, result in self._poll_results(0 if index in done else _POLL_SECONDS):
                    if job.call_id == self._call_id:
                        done[job.batch_index] = self._pin(result)
                if index in done:
                    break
                on_wait()
            result = done.pop(index)
            if isinstance(result, JobFailed):
                raise result.error
            batch: Batch = result.result() if isinstance(result, Future) else result
            yield batch | {"warnings": self._take_messages()}

    def _submit(self, job: "_Job") -> None:
        if len(self._workers) < self._num_workers and all(worker.jobs for worker in self._workers):
            self._workers.append(_BatchWorker(self._collator))
        min(self._workers, key=lambda worker: len(worker.jobs)).submit(job)

    def _poll_results(self, seconds: float) -> Iterator[tuple["_Job", Batch | JobFailed]]:
        """Yield the results that arrive within some seconds; replace dead and stuck workers."""
        started = time.monotonic()
        ready = wait([worker.connection for worker in self._workers], seconds)
        # Only time spent waiting here counts: the process may have been suspended or busy.
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
        """Kill a worker and give its jobs, and `job` if it was taken from it, to a new one."""
        jobs = [*([job] if job else []), *worker.jobs]
        video = worker.current_video if jobs else _NO_VIDEO
        self._workers.remove(worker)
        kill_workers([worker])
        self._consecutive_deaths += 1
        where = f" at {self._collator.dataset.name(video)}" if video != _NO_VIDEO else ""
        if worker.num_opened == 0:
            raise StillmotionError(
                f"A decoding worker {description} before reading its first video. Try --num-workers 0."
            )
        if self._consecutive_deaths > _MAX_DEATHS_PER_WORKER * self._num_workers:
            raise StillmotionError(
                f"Decoding workers keep failing (the last one {description}{where}). "
                "Check disk and memory, or decrease --num-workers."
            )
        self._deaths_by_video[video] += 1
        if video != _NO_VIDEO and self._deaths_by_video[video] > 1:
            name = self._collator.dataset.name(video)
            self._blocked[video] = f"{name}: crashed every worker that read it; the last one {description}"
        else:
            self._messages.append(f"Decoding worker {description}{where}; restarted it")
        if jobs:
            new_worker = _BatchWorker(self._collator)
            self._workers.append(new_worker)
            for pending in jobs:
                new_worker.submit(pending._replace(blocked=self._blocked))

    def _pin(self, result: Batch | JobFailed) -> "Batch | JobFailed | Future[Batch]":
        """Copy a batch to pinned memory, in a thread."""
        if self._pin_thread is None or isinstance(result, JobFailed):
            return result
        return self._pin_thread.submit(pin_batch, result)

    def _take_messages(self) -> list[str]:
        messages, self._messages = self._messages, []
        return messages


def _read_timeout() -> float:
    text = os.environ.get(WORKER_TIMEOUT_ENV, str(_TIMEOUT_SECONDS))
    try:
        return float(text)
    except ValueError:
        raise StillmotionError(f"{WORKER_TIMEOUT_ENV} is {text!r}; must be a number of seconds, e.g. 120") from None


def pin_batch(batch: Batch) -> Batch:
    """Copy the clips of a batch to pinned memory."""
    return batch | {"clips": batch["clips"].pin_memory()}


class _Job(NamedTuple):
    """A batch to build.

    Attributes:
        call_id: Number of the call of `imap`.
        batch_index: Index of the batch in that call.
        keys: Keys of the items.
        blocked: Reasons not to open some videos, by index.
    """

    call_id: int
    batch_index: int
    keys: Sequence[SampleKey]
    blocked: Mapping[int, str]


class _BatchWorker(Worker[_Job]):
    """A worker that builds batches.

    Attributes:
        idle_seconds: Time that the parent waited for it since it last opened a video.
    """

    jobs: deque[_Job]

    def __init__(self, collator: BatchCollator) -> None:
        # Number of videos opened, and the index of the current one.
        self._status = worker_context("stillmotion.data.loading.loader").RawArray("q", [0, _NO_VIDEO])
        self._last_num_opened, self.idle_seconds = 0, 0.0
        super().__init__(_BatchTask(collator, self._status))

    @property
    def num_opened(self) -> int:
        """Number of videos that it has opened."""
        return int(self._status[0])

    @property
    def current_video(self) -> int:
        """Index of the video that it is reading."""
        return int(self._status[1])

    def is_stuck(self, seconds: float, timeout: float) -> bool:
        """Add waiting time and return whether the worker is stuck.

        Args:
            seconds: Time waited since the last call.
            timeout: Maximum time for a video.
        """
        progressed = self.num_opened != self._last_num_opened or not self.jobs
        self.idle_seconds = 0.0 if progressed else self.idle_seconds + seconds
        self._last_num_opened = self.num_opened
        return self.idle_seconds > (timeout if self.num_opened else max(timeout, _STARTUP_SECONDS))

    def exit_status(self) -> WorkerDied:
        """How a worker with a closed connection ended."""
        self.process.join(_POLL_SECONDS)
        return WorkerDied(self.process.exitcode)


class _BatchTask:
    """Builds a batch in a worker, and updates its status."""

    def __init__(self, collator: BatchCollator, status: Any) -> None:
        self.collator, self.status = collator, status

    def __call__(self, job: _Job) -> Batch | ResultWithFile:
        videos = self.collator.dataset
        videos.on_open, videos.blocked = self._on_open, job.blocked
        memory = _SharedClipMemory()
        batch = self.collator(job.keys, stack=memory.stack)
        self.status[1] = _NO_VIDEO
        return memory.pack(batch)

    def _on_open(self, video: int) -> None:
        self.status[1] = video
        self.status[0] += 1


class _SharedClipMemory:
    """Shared memory for the clips of a batch, as an anonymous file."""

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
        layout = (clips.numel() * clips.element_size(), clips.dtype, tuple(clips.shape))
        return ResultWithFile(batch | {"clips": layout}, self._fd)


def _unpack(packed: ResultWithFile) -> Batch:
    try:
        return packed.result | {"clips": _map_tensor(packed.fd, *packed.result["clips"])}
    finally:
        os.close(packed.fd)


def _map_tensor(file: int, size: int, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    return torch.frombuffer(mmap.mmap(file, size), dtype=dtype).view(shape)
