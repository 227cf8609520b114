"""Commands of `stillmotion` in processes of their own, each with its own temporary folder.

Most are forked from one process that has imported what they need, which saves seconds for each. Those on two processes
are started by torchrun.
"""

import atexit
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

_MARK = "STILLMOTION_FAULT_INJECTION"
_CONTEXT = multiprocessing.get_context("forkserver")
_PRELOADED = (
    "torch._dynamo",
    "torch.utils.tensorboard",
    "sklearn.linear_model",
    "scipy.optimize",
    "stillmotion.cli.main",
    "stillmotion.cli.commands.data",
    "stillmotion.cli.commands.search",
    "stillmotion.cli.commands.training",
    "stillmotion.browse.server",
    "stillmotion.index.builder",
    "stillmotion.training.tasks",
    "stillmotion.training.trainer",
    "tools.fault_injection.checks",
)
TIMEOUT = 300.0
# What other software leaves in a temporary folder when it is killed.
_FOREIGN_TEMP_FILES = ("pymp-", "torchelastic_", "torch_", "torchinductor_", "__KMP_REGISTERED_LIB")


def start_warm_process() -> None:
    """Start the process from which commands are forked."""
    _CONTEXT.set_forkserver_preload(["__main__", *_PRELOADED])
    process = _CONTEXT.Process(target=os.getpid)
    process.start()
    process.join()


class RunningCommand:
    """A running command.

    Args:
        words: What a user types after `stillmotion`.
        work_dir: Folder for the output of the command and for its temporary folder.
        temp_dir: Temporary folder; default is one of its own.
        num_ranks: Number of processes under torchrun; 0 runs the command without it.
        max_file_bytes: Size at which a file cannot grow any more, as on a full disk.
    """

    def __init__(
        self,
        words: tuple[str, ...],
        work_dir: Path,
        *,
        temp_dir: Path | None = None,
        num_ranks: int = 0,
        max_file_bytes: int | None = None,
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._log = work_dir / f"{self._mark[:8]}.log"
        self.temp_dir = temp_dir or work_dir / self._mark[:8]
        self.temp_dir.mkdir(exist_ok=True)
        environment = {_MARK: self._mark, "TMPDIR": str(self.temp_dir), "XDG_CACHE_HOME": str(work_dir / "cache")}
        environment |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self._process: Any
        if num_ranks:
            launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks))
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [sys.executable, *launcher, "-m", "stillmotion", *words],
                    stdout=log,
                    stderr=log,
                    env=os.environ | environment,
                    start_new_session=True,
                )
        else:
            self._process = _CONTEXT.Process(target=_run, args=(words, environment, self._log, max_file_bytes))
            self._process.start()
        self.pid: int = self._process.pid

    def wait(self, timeout: float = TIMEOUT) -> int | None:
        """Wait for the end; returns the exit code, or None if the command had to be killed after the timeout."""
        deadline = time.monotonic() + timeout
        while (code := self.exit_code) is None:
            if time.monotonic() > deadline:
                self.kill_all()
                return None
            time.sleep(0.01)
        return code

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while the command runs."""
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll()
        return self._process.exitcode

    def kill(self) -> None:
        """Kill the command itself, and none of its children."""
        self._process.kill()
        self._wait_for_end()

    def terminate(self) -> None:
        """Stop the command as a service manager does."""
        self._process.terminate()

    def living_processes(self, patience: float = 0.0) -> list[int]:
        """Return the processes that this command has started and that are still there after some patience."""
        deadline = time.monotonic() + patience
        while (found := self._find_processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _find_processes(self) -> list[int]:
        """The processes of this session, and those that have inherited the environment."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                state, _, _, session = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
                is_marked = f"{_MARK}={self._mark}".encode() in (place / "environ").read_bytes()
            except (OSError, ValueError):
                continue
            if state not in "ZX" and (int(session) == self.pid or is_marked):
                found.append(int(place.name))
        return found

    def kill_all(self) -> None:
        """Kill the command and its children."""
        for pid in {self.pid, *self._find_processes()} if self.exit_code is None else self._find_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        if isinstance(self._process, subprocess.Popen):
            self._process.wait(TIMEOUT)
        else:
            self._process.join(TIMEOUT)

    def temporary_files(self) -> list[str]:
        """Return the names of the files that the command has left in its temporary folder."""
        return sorted(path.name for path in self.temp_dir.iterdir() if not path.name.startswith(_FOREIGN_TEMP_FILES))

    @property
    def output(self) -> str:
        """What the command has printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def last_line(self) -> str:
        """The last line that the command has printed."""
        lines = self.output.strip().splitlines()
        return lines[-1][:200] if lines else "no output"


def _run(words: tuple[str, ...], environment: dict[str, str], log: Path, max_file_bytes: int | None) -> None:
    os.setsid()
    os.environ |= environment
    tempfile.tempdir = None  # the folder of the environment
    # The workers of the command come from its own fork server, as in real life.
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    opened = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(opened, stream)
    if max_file_bytes is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
    sys.argv = ["stillmotion", *words]
    from stillmotion.cli.main import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()
