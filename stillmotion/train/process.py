"""This process: the device it computes on, and the signals that ask it to stop."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
from torch import nn

from stillmotion import distributed
from stillmotion.config import TrainConfig
from stillmotion.distributed import average_, world
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.nn.norms import join_norms

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME = 3.0  # seconds in which a rank hears of one Ctrl-C twice: from the terminal and from torchrun
SHARES = timedelta(days=1)  # by which ranks with shares of their own may be apart: a lost one is noticed all the same
_GRACE = 3.0  # seconds that a run which is asked to stop still waits for clips


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" is this process's CUDA device where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise StillmotionError(f"device {name!r} cannot be used: there is no CUDA here; choose auto or cpu")
            own = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
            device = torch.device("cuda", own)
            torch.cuda.set_device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise StillmotionError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


@contextlib.contextmanager
def computing(train: TrainConfig, *, patience: timedelta | None = None) -> Iterator[torch.device]:
    """This process's device, within the group of processes that `torchrun` describes, where it does.

    patience: how long one of them waits for the others, as `distributed.start` has it.
    Ctrl-C and SIGTERM end what is done meanwhile by `Interrupted`; so does the loss of a rank that was ended so.
    """
    with stoppable():
        device = choose_device(train.device)
        distributed.start(device.type, patience=patience)
        try:
            if train.threads:
                torch.set_num_threads(train.threads)
            with _same_bits() if train.deterministic else contextlib.nullcontext():
                yield device
        except RuntimeError as error:
            if not distributed.is_loss(error):
                raise
            time.sleep(2)  # whoever ended the other rank is about to end this one
            raise StillmotionError("another process of this run has ended; its own words say why") from None
        finally:
            distributed.stop()


@contextlib.contextmanager
def _same_bits() -> Iterator[None]:
    """Within it, torch takes algorithms that give the same bits each time, and warns where it has none."""
    cudnn, workspace = torch.backends.cudnn, "CUBLAS_WORKSPACE_CONFIG"
    before = cudnn.deterministic, cudnn.benchmark, os.environ.get(workspace)
    asked, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    os.environ.setdefault(workspace, ":4096:8")  # read when cuBLAS is first called
    cudnn.deterministic, cudnn.benchmark = True, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before[:2]
        torch.use_deterministic_algorithms(asked, warn_only=warns)
        if before[2] is None:
            os.environ.pop(workspace, None)


def synchronise_norms(module: nn.Module) -> None:
    """Let batch norms see the batch of all ranks, where there are several."""
    if world() > 1:
        join_norms(module)


class StopRequest:
    """Whether Ctrl-C or SIGTERM has asked the run to stop; a second Ctrl-C does not wait for the end of a step.

    code: what the process then ends with.
    """

    def __init__(self) -> None:
        self.code = 128 + signal.SIGINT
        self._since: float | None = None

    @property
    def asked(self) -> bool:
        """Whether this rank was."""
        return self._since is not None

    @property
    def overdue(self) -> bool:
        """Whether it was some time ago."""
        return self._since is not None and time.monotonic() - self._since > _GRACE

    def note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since, self.code = now, 128 + number
        elif number == signal.SIGINT and now - self._since > _SAME * ("TORCHELASTIC_RUN_ID" in os.environ):
            raise Interrupted("stopped at once; the same command goes on from the last checkpoint", 128 + number)

    def agreed(self) -> bool:
        """Whether any rank was asked; all of them learn it at the same step."""
        if world() == 1:
            return self.asked
        # On the CPU, whatever computes: to ask the device would be to wait for it.
        asked = torch.tensor([float(self.asked and self.code == 128 + number) for number in _SIGNALS])
        average_([asked])
        if asked.any() and not self.asked:
            self.code = 128 + _SIGNALS[int(asked.argmax())]
        return bool(asked.any())


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Collect Ctrl-C and SIGTERM instead of dying of them.

    What breaks after such a signal was broken by it, which other processes heard, too: it is no error.
    """
    request = StopRequest()
    with _handled(request.note):
        try:
            yield request
        except (RuntimeError, EOFError, OSError):
            if not request.asked:
                raise
            raise Interrupted("stopped; the same command goes on from the last checkpoint", request.code) from None


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end what is done meanwhile by `Interrupted`, wherever it stands."""
    with _handled(_stop):
        yield


def _stop(number: int, frame: FrameType | None) -> None:
    raise Interrupted("stopped; the same command goes on from there", 128 + number)


@contextlib.contextmanager
def _handled(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    try:
        before = {number: signal.signal(number, handler) or signal.SIG_DFL for number in _SIGNALS}
    except ValueError:  # outside the main thread signals are somebody else's
        before = {}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
