"""Call a function in a process that may hang, crash or take all memory; the next call then gets a new process."""

import os
import resource
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from stillmotion.utils.worker_processes import JobFailed, Worker, WorkerDied

Job = TypeVar("Job")
_MAX_SECONDS = 60.0  # of a call; a busy machine is slow
_MAX_RESIDENT_BYTES = 4 * 2**30
_MAX_ADDRESS_BYTES = 24 * 2**30  # a process that maps more ends, and not the machine


class GuardedProcess(Generic[Job]):
    """A function of a job that returns what went wrong, or None. It is called in a process of its own.

    Args:
        function: The function, which can be imported.
    """

    def __init__(self, function: Callable[[Job], str | None]) -> None:
        self._function = function
        self._worker: Worker[Any] | None = None

    def __call__(self, job: Job) -> str | None:
        """Call the function; a hang, a crash and the use of much memory are failures."""
        if self._worker is None:
            self._worker = Worker(_limited_call, grace_seconds=1.0)
        worker = self._worker
        worker.submit((self._function, job))
        is_done = worker.connection.poll(_MAX_SECONDS)
        if not is_done:
            worker.process.kill()
        _, result = worker.receive()
        if isinstance(result, WorkerDied):
            self._worker = None
            worker.connection.close()
            return f"took longer than {_MAX_SECONDS:g} s" if not is_done else str(result)
        if isinstance(result, JobFailed):
            return str(result.error).strip().splitlines()[-1]
        failure, num_bytes = result
        if num_bytes > _MAX_RESIDENT_BYTES:
            self.close()  # the next process starts small
            return failure or f"took {num_bytes / 2**30:.1f} GiB of memory"
        return failure

    def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            self._worker.process.kill()
            self._worker.connection.close()
            self._worker = None


def _limited_call(job: tuple[Callable[[Any], str | None], Any]) -> tuple[str | None, int]:
    if resource.getrlimit(resource.RLIMIT_AS)[0] != _MAX_ADDRESS_BYTES:
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_ADDRESS_BYTES, _MAX_ADDRESS_BYTES))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries of others print what is wrong with a file
    function, argument = job
    failure = function(argument)
    return failure, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
