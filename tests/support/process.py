"""Commands of `stillmotion` in processes of their own, forked from a server that has imported what they need."""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from functools import cache
from itertools import count
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "stillmotion.studies.demo.study",
        "stillmotion.training.pretrain.report",
        "torch.utils.tensorboard",
        "torch._dynamo",
        "sklearn.linear_model",
    ]
)
_COUNTER = count()


class Command:
    """A running command.

    Args:
        arguments: Command line after `stillmotion`.
        environment: Further environment variables.

    Attributes:
        store: Rendezvous store of several ranks, which must live as long as the command.
    """

    store: object = None

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self._streams = Path(_temp_dir().name, str(next(_COUNTER)))
        self._streams.mkdir()
        self._process = _CONTEXT.Process(target=_run, args=(arguments, environment or {}, self._streams))
        self._process.start()

    @property
    def stderr(self) -> str:
        """Text written to stderr so far."""
        return self._read("2")

    @property
    def stdout(self) -> str:
        """Text written to stdout so far."""
        return self._read("1")

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def _read(self, stream: str) -> str:
        file = self._streams / stream
        return file.read_text() if file.exists() else ""

    def wait(self) -> int:
        """Wait for the end; returns the exit code, or minus the signal that ended it."""
        self._process.join(120)
        assert self._process.exitcode is not None, f"still running:\n{self.stderr}"
        return self._process.exitcode

    def expect_success(self) -> str:
        """Assert that the command succeeds; returns its stderr."""
        assert self.wait() == 0, self.stderr
        return self.stderr

    def expect_error(self) -> str:
        """Assert that the command fails with exit code 2 and one line on stderr; returns this line."""
        assert self.wait() == 2, self.stderr
        (line,) = self.stderr.splitlines()
        assert line.startswith("stillmotion: ")
        return line


def two_ranks(*arguments: str) -> tuple[Command, Command]:
    """Start a command on two ranks."""
    first, second = several_ranks(2, *arguments)
    return first, second


def several_ranks(world_size: int, *arguments: str) -> list[Command]:
    """Start a command on several ranks, which meet as under `torchrun`: at a store of its agent."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {"WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size)}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    ranks = [
        Command(*arguments, environment=common | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(world_size)
    ]
    for rank in ranks:
        rank.store = store
    return ranks


def wait_for_steps(command: Command, run_dir: Path, num_steps: int) -> None:
    """Wait until the run has logged `num_steps` steps."""
    deadline = time.monotonic() + 120
    file = run_dir / "metrics.jsonl"
    while not file.exists() or file.read_text().count("\n") < num_steps:
        assert command.is_running, command.stderr
        assert time.monotonic() < deadline, "the run makes no progress"
        time.sleep(0.005)


def _run(arguments: tuple[str, ...], environment: dict[str, str], streams: Path) -> None:
    os.environ |= environment
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # a fork server of decoders has it blocked
    for number in (1, 2):
        os.dup2(os.open(streams / str(number), os.O_WRONLY | os.O_CREAT), number)
    sys.argv = ["stillmotion", *arguments]
    from stillmotion.cli.main import main

    main()


@cache
def _temp_dir() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stillmotion-commands-")
