"""Start worker processes, run jobs in them, and survive crashes."""

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
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
_QUEUED_JOBS = 2  # jobs of a worker: the current one and the next
_PR_SET_PDEATHSIG = 1  # of prctl
_EXIT_TIMEOUT = 5.0  # seconds to wait for the rest of a message, or for a killed process


def worker_context(preload: str) -> Any:
    """Return the multiprocessing context for workers.

    Args:
        preload: Module that the fork server imports for all workers; the first call decides.
    """
    # Plain fork hangs once OpenCV or CUDA has run in the parent; a fork server does not, and imports modules once.
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    context.set_forkserver_preload(["stillmotion.utils.forkserver_preload", preload])
    if sys.platform != "win32":
        _start_forkserver()
    return context


def _start_forkserver() -> None:
    """Start the fork server if there is none, with Ctrl-C blocked in it and in its children.

    A terminal sends Ctrl-C to all processes, and one that has not called `init_worker` yet would print a traceback.
    """
    resource_tracker.ensure_running()  # otherwise the server starts it and unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    except OSError as error:
        if "path too long" not in str(error):
            raise
        raise StillmotionError(
            f"the path of the temporary folder {tempfile.gettempdir()} is too long for a socket; set TMPDIR to a "
            "shorter one"
        ) from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def init_worker(grace_seconds: float = 0.0) -> None:
    """Initialize a worker: it ends with its parent, ignores Ctrl-C, and uses one core.

    The parent handles signals and ends its workers.

    Args:
        grace_seconds: Time from SIGTERM to the kill, in which a job can save its state. 0 ignores SIGTERM, too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL if grace_seconds else signal.SIG_IGN)
    if not grace_seconds:
        _kill_with_parent()
    threading.Thread(target=_end_with_parent, args=(grace_seconds,), daemon=True).start()
    cv2.setNumThreads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for torch, if it is imported later
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _kill_with_parent() -> None:
    """Let the kernel kill this process when the fork server ends, even if this process is stopped; Linux only.

    The server ends when nobody has its pipe open: the main process, and each worker unless it closes the pipe here.
    """
    if sys.platform != "linux":
        return
    server: Any = getattr(forkserver, "_forkserver", None)
    pipe = getattr(server, "_forkserver_alive_fd", None)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if pipe is not None:
            server._forkserver_alive_fd = None
            os.close(pipe)


def _end_with_parent(grace_seconds: float) -> None:
    # However the parent ends, its sentinel closes. That of the fork server does not, because workers have it open.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if grace_seconds:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(grace_seconds)
        os._exit(1)


class WorkerDied(NamedTuple):
    """Result of a job whose process ended.

    Attributes:
        exit_code: Exit code of the process.
    """

    exit_code: int | None

    def __str__(self) -> str:
        return f"Worker process {describe_exit_code(self.exit_code)}, possibly out of memory"


def describe_exit_code(exit_code: int | None) -> str:
    """Describe how a process ended, as a phrase that follows its name."""
    if exit_code is not None and exit_code < 0:
        return f"was killed by signal {-exit_code}"
    return f"ended with code {exit_code}"


class JobFailed(NamedTuple):
    """Result of a job that raised an error."""

    error: Exception


class ResultWithFile(NamedTuple):
    """A result and an open file descriptor that is sent with it; the receiver closes it."""

    result: Any
    fd: int


def run_in_processes(
    function: Callable[[Job], Result], jobs: Iterable[Job], num_processes: int, *, grace_seconds: float = 0.0
) -> Generator[tuple[Job, Result | WorkerDied], None, None]:
    """Run jobs in worker processes and yield (job, result) as they complete.

    A crashed worker is replaced and its job yields `WorkerDied`. The workers are killed when the generator ends.

    Args:
        function: Function of a job, importable by the workers.
        jobs: The jobs.
        num_processes: Number of worker processes.
        grace_seconds: Time that a stopped job has to save its state after SIGTERM. Jobs with such a time may start
            processes of their own, and no job waits in the queue of a worker.

    Raises:
        StillmotionError: If a job raises it.
        RuntimeError: If a job raises anything else, with its traceback.
    """
    pending = deque(jobs)
    workers: list[Worker[Job]] = []
    try:
        while pending or workers:
            num_new = min(num_processes - len(workers), len(pending))
            workers += [Worker(function, grace_seconds=grace_seconds) for _ in range(num_new)]
            for queue_length in range(1, 2 if grace_seconds else _QUEUED_JOBS + 1):
                for worker in workers:
                    # The last jobs are not queued: they go to the first idle worker.
                    if pending and len(worker.jobs) < (queue_length if len(pending) > num_processes else 1):
                        worker.submit(pending.popleft())
            idle = [worker for worker in workers if not worker.jobs]
            workers = [worker for worker in workers if worker.jobs]
            kill_workers(idle)
            for ready in wait([worker.connection for worker in workers]) if workers else ():
                worker = next(worker for worker in workers if worker.connection is ready)
                job, result = worker.receive()
                if isinstance(result, JobFailed):
                    raise result.error
                if isinstance(result, WorkerDied):
                    workers.remove(worker)
                    kill_workers([worker])
                    pending.extendleft(reversed(worker.jobs))
                yield job, result
    finally:
        kill_workers(workers, grace_seconds=grace_seconds)


class Worker(Generic[Job]):
    """A worker process.

    Args:
        function: Function of a job, importable by the process.
        grace_seconds: Time that a job has to save its state after SIGTERM.

    Attributes:
        jobs: Jobs of the worker; it works on the first.
    """

    def __init__(self, function: Callable[[Job], Any], *, grace_seconds: float = 0.0) -> None:
        context = worker_context(function.__module__)
        self.connection, other = context.Pipe()
        # A daemon must not have children.
        self.process = context.Process(
            target=_worker_loop, args=(other, function, grace_seconds), daemon=not grace_seconds
        )
        self.process.start()
        other.close()  # so that the connection closes with the process
        self.jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Send a job."""
        self.jobs.append(job)
        with contextlib.suppress(OSError):  # if the process is dead, `receive` reports it
            self.connection.send(job)

    def receive(self) -> tuple[Job, Any]:
        """Wait for the first job; returns it with its result, `JobFailed` or `WorkerDied`."""
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


def kill_workers(workers: Iterable[Worker[Any]], *, grace_seconds: float = 0.0) -> None:
    """End worker processes.

    Args:
        workers: Workers.
        grace_seconds: Time from SIGTERM to the kill; 0 kills at once.
    """
    workers = list(workers)
    for worker in workers:
        worker.connection.close()
        if grace_seconds:
            worker.process.terminate()
    deadline = time.monotonic() + grace_seconds
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        worker.process.kill()
    for worker in workers:
        worker.process.join(_EXIT_TIMEOUT)


def _worker_loop(connection: Connection, function: Callable[[Any], Any], grace_seconds: float) -> None:
    init_worker(grace_seconds)
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
                error = RuntimeError(traceback.format_exc())  # the error itself may not be picklable
            _send_result(connection, result, error)
            del job, result


def _send_result(connection: Connection, result: Any, error: Exception | None) -> None:
    has_file = isinstance(result, ResultWithFile)
    content = result.result if has_file else result
    # A plain pickle: with torch's own, the receiver would need this process, which may be stuck, to get the tensors.
    connection.send_bytes(pickle.dumps((content, error, has_file)))
    if has_file:
        reduction.send_handle(connection, result.fd, os.getpid())
        os.close(result.fd)
