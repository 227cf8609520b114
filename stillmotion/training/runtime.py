"""Training session (device, process group, determinism) and stop signals."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import FrameType
from typing import Any

import torch

from stillmotion.distributed import process_group
from stillmotion.distributed.collectives import all_reduce_mean_
from stillmotion.distributed.process_group import get_world_size
from stillmotion.errors import Interrupted, StillmotionError
from stillmotion.training.config import TrainConfig
from stillmotion.utils.device import resolve_device

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DUPLICATE_SIGNAL_SECONDS = 3.0  # within which a rank gets one Ctrl-C twice: from the terminal and from torchrun
# Ranks that extract features may wait this long for each other; a failed rank is noticed earlier.
FEATURE_EXTRACTION_TIMEOUT = timedelta(days=1)
_STOP_GRACE_SECONDS = 3.0  # for which a run that was asked to stop waits for clips


@contextlib.contextmanager
def training_session(train: TrainConfig, *, timeout: timedelta | None = None) -> Iterator[torch.device]:
    """Context manager of a training process: device, process group, threads, determinism, stop signals.

    Args:
        train: Options of the training loop.
        timeout: How long ranks wait for each other; None is the process group's default.

    Yields:
        The device of this process.
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
            time.sleep(2)  # what ended the other rank may be about to end this one
            raise StillmotionError("Another process of this run failed; see its error message.") from None
        finally:
            process_group.destroy_process_group()


@contextlib.contextmanager
def _deterministic_algorithms() -> Iterator[None]:
    """Use deterministic algorithms; torch warns if it has none."""
    cudnn, workspace = torch.backends.cudnn, "CUBLAS_WORKSPACE_CONFIG"
    previous = cudnn.deterministic, cudnn.benchmark, os.environ.get(workspace)
    enabled, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    os.environ.setdefault(workspace, ":4096:8")  # read when cuBLAS is first called
    cudnn.deterministic, cudnn.benchmark = True, False
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = previous[:2]
        torch.use_deterministic_algorithms(enabled, warn_only=warns)
        if previous[2] is None:
            os.environ.pop(workspace, None)


class StopRequest:
    """Records Ctrl-C or SIGTERM; a second Ctrl-C stops immediately.

    Attributes:
        exit_code: Exit code of the process after the signal.
    """

    def __init__(self) -> None:
        self.exit_code = 128 + signal.SIGINT
        self._since: float | None = None

    @property
    def is_requested(self) -> bool:
        """Whether this rank received a stop signal."""
        return self._since is not None

    @property
    def is_overdue(self) -> bool:
        """Whether the stop signal was received more than a few seconds ago."""
        return self._since is not None and time.monotonic() - self._since > _STOP_GRACE_SECONDS

    def handle_signal(self, signum: int, frame: FrameType | None) -> None:
        """Handle a signal, as `signal.signal` needs it.

        Args:
            signum: Number of the signal.
            frame: Not used.
        """
        now = time.monotonic()
        if self._since is None:
            self._since, self.exit_code = now, 128 + signum
        elif signum == signal.SIGINT and now - self._since > _DUPLICATE_SIGNAL_SECONDS * (
            "TORCHELASTIC_RUN_ID" in os.environ
        ):
            raise Interrupted(
                "Stopped immediately. Run the same command to resume from the last checkpoint.", 128 + signum
            )

    def is_requested_on_any_rank(self) -> bool:
        """Whether any rank received a stop signal. Collective."""
        if get_world_size() == 1:
            return self.is_requested
        # On the CPU, because reading from the device would wait for it.
        requested = torch.tensor([float(self.is_requested and self.exit_code == 128 + number) for number in _SIGNALS])
        all_reduce_mean_([requested])
        if requested.any() and not self.is_requested:
            self.exit_code = 128 + _SIGNALS[int(requested.argmax())]
        return bool(requested.any())


@contextlib.contextmanager
def defer_stop_signals() -> Iterator[StopRequest]:
    """Context manager that records Ctrl-C and SIGTERM instead of raising.

    An error after such a signal is taken as its consequence, since other processes received it, too.
    """
    request = StopRequest()
    with _signal_handlers(request.handle_signal):
        try:
            yield request
        except (RuntimeError, EOFError, OSError):
            if not request.is_requested:
                raise
            raise Interrupted(
                "Stopped. Run the same command to resume from the last checkpoint.", request.exit_code
            ) from None


@contextlib.contextmanager
def raise_on_stop_signals() -> Iterator[None]:
    """Context manager in which Ctrl-C and SIGTERM raise `Interrupted` immediately."""
    with _signal_handlers(_raise_interrupted):
        yield


def _raise_interrupted(signum: int, frame: FrameType | None) -> None:
    raise Interrupted("Stopped. Run the same command to resume.", 128 + signum)


@contextlib.contextmanager
def _signal_handlers(handler: Callable[[int, FrameType | None], Any]) -> Iterator[None]:
    try:
        previous_handlers = {number: signal.signal(number, handler) or signal.SIG_DFL for number in _SIGNALS}
    except ValueError:  # only the main thread can handle signals
        previous_handlers = {}
    try:
        yield
    finally:
        for number, previous in previous_handlers.items():
            signal.signal(number, previous)
