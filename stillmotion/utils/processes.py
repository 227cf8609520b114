"""How worker processes of the data path are started, and a pool of them that outlives a death."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable
from multiprocessing import forkserver, reduction, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, NamedTuple, TypeVar

import cv2

from stillmotion.errors import StillmotionError

Job = TypeVar("Job")
Result = TypeVar("Result")
_QUEUED_JOBS = 2  # jobs that a worker has: the one it does, and the next
_EXIT_TIMEOUT = 5.0  # seconds in which what was begun to be sent has come, and what was killed is gone


def worker_context(preload: str = "stillmotion.data.loading.loader") -> Any:
    """The multiprocessing context to start workers in. preload: what all of them need, where it is the first to ask."""
    # Plain fork hangs once OpenCV or CUDA has run in the parent; a fork server is clean, and imports only once.
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    context.set_forkserver_preload(["stillmotion.utils.forkserver_preload", preload])
    if sys.platform != "win32":
        _start_forkserver()
    return context


def _start_forkserver() -> None:
    """Start the fork server where there is none; neither it nor its children ever hear of Ctrl-C.

    A terminal sends that to all of them, and who has not come to `start_worker` yet would end in a traceback.
    """
    resource_tracker.ensure_running()  # which the server would start, and unblock signals after it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def init_worker(worker: int = 0) -> None:
    """What a worker does first: it ends with its parent, leaves signals to it, and keeps to one core.

    The parent hears Ctrl-C and SIGTERM, and ends its workers when it is ready to.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    cv2.setNumThreads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for torch, which takes seconds to import: not every worker needs it
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _end_with_parent() -> None:
    # However the parent ends, the pipe behind its sentinel closes. That of the fork server does not: workers hold it.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class WorkerDied(NamedTuple):
    """In place of a result: the process ended while it was at the job. code: its exit code."""

    exit_code: int | None

    def __str__(self) -> str:
        return f"the process that was at it {describe_exit_code(self.exit_code)}; too little memory may be the reason"


def describe_exit_code(exit_code: int | None) -> str:
    """What an exit code of a process says, in words."""
    if exit_code is not None and exit_code < 0:
        return f"was killed by signal {-exit_code}"
    return f"ended with code {exit_code}"


class JobFailed(NamedTuple):
    """In place of a result: what the job raised."""

    error: Exception


class ResultWithFile(NamedTuple):
    """A result and an open file that is handed over with it; whoever takes it closes the file."""

    result: Any
    fd: int


def run_in_processes(
    function: Callable[[Job], Result], jobs: Iterable[Job], num_processes: int
) -> Generator[tuple[Job, Result | WorkerDied], None, None]:
    """Do jobs in worker processes: each with its result, as they end.

    A process that dies is replaced, and its job has `Died` for a result. What a job raises is raised here.
    However this ends, the processes end with it, in the midst of their jobs if need be.
    """
    left = deque(jobs)
    workers: list[Worker[Job]] = []
    try:
        while left or workers:
            workers += [Worker(function) for _ in range(min(num_processes - len(workers), len(left)))]
            for each in range(1, _QUEUED_JOBS + 1):
                for worker in workers:
                    # The last ones go to whoever is done first.
                    if left and len(worker.jobs) < (each if len(left) > num_processes else 1):
                        worker.submit(left.popleft())
            idle = [worker for worker in workers if not worker.jobs]
            workers = [worker for worker in workers if worker.jobs]
            kill_workers(idle)
            for ready in wait([worker.connection for worker in workers]) if workers else ():  # of none, for ever
                worker = next(worker for worker in workers if worker.connection is ready)
                job, result = worker.receive()
                if isinstance(result, JobFailed):
                    raise result.error
                if isinstance(result, WorkerDied):
                    workers.remove(worker)
                    kill_workers([worker])
                    left.extendleft(reversed(worker.jobs))
                yield job, result
    finally:
        kill_workers(workers)


class Worker(Generic[Job]):
    """A process that does jobs. jobs: that it has, the first of which it is at."""

    def __init__(self, function: Callable[[Job], Any]) -> None:
        context = worker_context(function.__module__)
        self.connection, other = context.Pipe()
        self.process = context.Process(target=_worker_loop, args=(other, function), daemon=True)
        self.process.start()
        other.close()  # so that the connection closes with the process
        self.jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self.jobs.append(job)
        with contextlib.suppress(OSError):  # of a dead process, which the next result tells
            self.connection.send(job)

    def receive(self) -> tuple[Job, Any]:
        """The job that ended and what came of it: its result, `Failed` or `Died`."""
        job = self.jobs.popleft()
        try:
            result, error, has_file = pickle.loads(self.connection.recv_bytes())
            if has_file:
                if not self.connection.poll(_EXIT_TIMEOUT):
                    raise EOFError
                result = ResultWithFile(result, reduction.recv_handle(self.connection))
        except (EOFError, OSError):
            self.process.join(_EXIT_TIMEOUT)
            return job, WorkerDied(self.process.exitcode)
        return job, result if error is None else JobFailed(error)


def kill_workers(workers: Iterable[Worker[Any]]) -> None:
    """End workers, whatever they are at."""
    workers = list(workers)
    for worker in workers:
        worker.connection.close()
        worker.process.kill()
    for worker in workers:
        worker.process.join(_EXIT_TIMEOUT)


def _worker_loop(connection: Connection, function: Callable[[Any], Any]) -> None:
    init_worker()
    with contextlib.suppress(EOFError, OSError):  # the parent has closed the connection
        while True:
            job = connection.recv()
            result: Any = None
            error: Exception | None = None
            try:
                result = function(job)
            except StillmotionError as failure:
                error = failure
            except Exception:
                error = RuntimeError(traceback.format_exc())  # which can be sent, whatever the error is
            _send_result(connection, result, error)
            del job, result


def _send_result(connection: Connection, result: Any, error: Exception | None) -> None:
    has_file = isinstance(result, ResultWithFile)
    content = result.result if has_file else result
    # A plain pickle: as torch sends tensors, the receiver would have to ask this process for them, which may be stuck.
    connection.send_bytes(pickle.dumps((content, error, has_file)))
    if has_file:
        reduction.send_handle(connection, result.fd, os.getpid())
        os.close(result.fd)
