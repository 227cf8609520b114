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

from stillmotion.distributed import process_group
from stillmotion.distributed.collectives import all_reduce_mean_
from stillmotion.distributed.process_group import get_world_size
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.models.batch_norm import convert_sync_batchnorm
from stillmotion.training.config import TrainConfig
from stillmotion.utils.device import resolve_device

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DUPLICATE_SIGNAL_SECONDS = (
    3.0  # seconds in which a rank hears of one Ctrl-C twice: from the terminal and from torchrun
)
FEATURE_EXTRACTION_TIMEOUT = timedelta(
    days=1
)  # by which ranks with shares of their own may be apart: a lost one is noticed all the same
_STOP_GRACE_SECONDS = 3.0  # seconds that a run which is asked to stop still waits for clips


@contextlib.contextmanager
def training_session(train: TrainConfig, *, timeout: timedelta | None = None) -> Iterator[torch.device]:
    """This process's device, within the group of processes that `torchrun` describes, where it does.

    timeout: how long one of them waits for the others, as `distributed.start` has it.
    Ctrl-C and SIGTERM end what is done meanwhile by `Interrupted`; so does the loss of a rank that was ended so.
    """
    with raise_on_stop_signals():
        device = resolve_device(train.device)
        process_group.init_process_group(device.type, timeout=timeout)
        try:
            if train.num_threads:
                torch.set_num_threads(train.num_threads)
            with _deterministic_algorithms() if train.deterministic else contextlib.nullcontext():
                yield device
        except RuntimeError as error:
            if not process_group.is_peer_failure(error):
                raise
            time.sleep(2)  # whoever ended the other rank is about to end this one
            raise StillmotionError("another process of this run has ended; its own words say why") from None
        finally:
            process_group.destroy_process_group()


@contextlib.contextmanager
def _deterministic_algorithms() -> Iterator[None]:
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


def sync_batch_norms(module: nn.Module) -> None:
    """Let batch norms see the batch of all ranks, where there are several."""
    if get_world_size() > 1:
        convert_sync_batchnorm(module)


class StopRequest:
    """Whether Ctrl-C or SIGTERM has asked the run to stop; a second Ctrl-C does not wait for the end of a step.

    exit_code: what the process then ends with.
    """

    def __init__(self) -> None:
        self.exit_code = 128 + signal.SIGINT
        self._since: float | None = None

    @property
    def is_requested(self) -> bool:
        """Whether this rank was."""
        return self._since is not None

    @property
    def is_overdue(self) -> bool:
        """Whether it was some time ago."""
        return self._since is not None and time.monotonic() - self._since > _STOP_GRACE_SECONDS

    def handle_signal(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since, self.exit_code = now, 128 + signum
        elif signum == signal.SIGINT and now - self._since > _DUPLICATE_SIGNAL_SECONDS * (
            "TORCHELASTIC_RUN_ID" in os.environ
        ):
            raise Interrupted("stopped at once; the same command goes on from the last checkpoint", 128 + signum)

    def is_requested_on_any_rank(self) -> bool:
        """Whether any rank was asked; all of them learn it at the same step."""
        if get_world_size() == 1:
            return self.is_requested
        # On the CPU, whatever computes: to ask the device would be to wait for it.
        asked = torch.tensor([float(self.is_requested and self.exit_code == 128 + number) for number in _SIGNALS])
        all_reduce_mean_([asked])
        if asked.any() and not self.is_requested:
            self.exit_code = 128 + _SIGNALS[int(asked.argmax())]
        return bool(asked.any())


@contextlib.contextmanager
def defer_stop_signals() -> Iterator[StopRequest]:
    """Collect Ctrl-C and SIGTERM instead of dying of them.

    What breaks after such a signal was broken by it, which other processes heard, too: it is no error.
    """
    request = StopRequest()
    with _signal_handlers(request.handle_signal):
        try:
            yield request
        except (RuntimeError, EOFError, OSError):
            if not request.is_requested:
                raise
            raise Interrupted("stopped; the same command goes on from the last checkpoint", request.exit_code) from None


@contextlib.contextmanager
def raise_on_stop_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end what is done meanwhile by `Interrupted`, wherever it stands."""
    with _signal_handlers(_raise_interrupted):
        yield


def _raise_interrupted(signum: int, frame: FrameType | None) -> None:
    raise Interrupted("stopped; the same command goes on from there", 128 + signum)


@contextlib.contextmanager
def _signal_handlers(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    try:
        before = {number: signal.signal(number, handler) or signal.SIG_DFL for number in _SIGNALS}
    except ValueError:  # outside the main thread signals are somebody else's
        before = {}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
