"""What ranks say to each other; on one process every function here is the identity."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from stillmotion.distributed.torchrun import exit_with_parent, is_torchrun_worker
from stillmotion.errors import StillmotionError

Result = TypeVar("Result")


def get_rank() -> int:
    """This process's number, 0 when alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def get_world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def init_process_group(device_type: str, *, timeout: timedelta | None = None) -> None:
    """Join the group that `torchrun` describes in the environment: nccl for what is on CUDA, gloo for all else.

    Its processes end with the agent that started them.
    timeout: how long a rank waits for the others; None as torch has it, minutes.
    """
    if is_torchrun_worker():
        exit_with_parent()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo", timeout=timeout)


def destroy_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def all_gather_object(value: object) -> list:
    """Every rank's small Python value, in rank order."""
    if get_world_size() == 1:
        return [value]
    values: list = [None] * get_world_size()
    dist.all_gather_object(values, value)
    return values


def run_on_main(fn: Callable[[], Result]) -> Result:
    """What `fn` returns on the first rank, told to all; what a user can mend there is raised on every rank.

    What it returns is small, and can be pickled.
    """
    if get_world_size() == 1:
        return fn()
    told: list[Any] = [None]
    if get_rank() == 0:
        try:
            told = [(fn(), None)]
        except StillmotionError as error:
            told = [(None, error)]
    dist.broadcast_object_list(told, 0)
    found, failure = told[0]
    if failure is not None:
        raise failure
    return found


def run_on_all(fn: Callable[[], Result]) -> Result:
    """What `fn` returns on this rank, once it has gone well on all; what a user can mend on one is raised on all."""
    found: Any = None
    failure = None
    try:
        found = fn()
    except StillmotionError as error:
        failure = error
    for failed in all_gather_object(failure):
        if failed is not None:
            raise failed
    return found


@contextmanager
def enter_on_main(make_context: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """What the first rank opens, such as the lock of a folder, is open; where it cannot be, all ranks end with that."""
    with ExitStack() as holding:

        def enter() -> None:
            holding.enter_context(make_context())

        run_on_main(enter)
        yield


def is_peer_failure(error: RuntimeError) -> bool:
    """Whether an error says that another rank is gone."""
    return get_world_size() > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error))


def barrier() -> None:
    if get_world_size() > 1:
        dist.barrier()
