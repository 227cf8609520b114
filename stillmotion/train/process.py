"""This process: the device it computes on, and the signals that ask it to stop."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

import torch
from torch import nn

from stillmotion import distributed
from stillmotion.config import TrainConfig
from stillmotion.distributed import average_, world
from stillmotion.errors import StillmotionError


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" is this process's CUDA device where there is one, else the CPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda":
            own = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
            device = torch.device("cuda", own)
            torch.cuda.set_device(device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise StillmotionError(f"device {name!r} cannot be used: {str(error).splitlines()[0]}") from None
    return device


@contextlib.contextmanager
def computing(train: TrainConfig) -> Iterator[torch.device]:
    """This process's device, within the group of processes that `torchrun` describes, where it does."""
    device = choose_device(train.device)
    distributed.start(device.type)
    try:
        if train.threads:
            torch.set_num_threads(train.threads)
        yield device
    finally:
        distributed.stop()


def synchronise_norms(module: nn.Module, device: torch.device) -> None:
    """Let batch norms see the batch of all ranks, where the device can."""
    if world() > 1 and device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(module)


class StopRequest:
    """Whether Ctrl-C or SIGTERM has asked the run to stop."""

    def __init__(self, device: torch.device) -> None:
        self._asked = torch.zeros((), device=device)

    def note(self, number: int, frame: FrameType | None) -> None:
        self._asked.fill_(1)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a second Ctrl-C does not wait

    def agreed(self) -> bool:
        """Whether any rank was asked; all of them learn it at the same step."""
        if world() == 1:
            return bool(self._asked)
        flag = self._asked.clone()
        average_([flag])
        return bool(flag)


@contextlib.contextmanager
def stop_signals(device: torch.device) -> Iterator[StopRequest]:
    """Collect Ctrl-C and SIGTERM instead of dying of them."""
    request = StopRequest(device)
    try:
        before = {s: signal.signal(s, request.note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # outside the main thread signals are somebody else's
        before = {}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
