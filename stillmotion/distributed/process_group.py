"""Start and end the process group; rank, world size and collectives of Python objects.

A single process does not import torch.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

from stillmotion.distributed.torchrun import exit_with_parent, is_torchrun_worker, torchrun_world_size
from stillmotion.errors import StillmotionError

Result = TypeVar("Result")


def get_rank() -> int:
    """Rank of this process; 0 without a process group."""
    group = _initialized_group()
    return group.get_rank() if group else 0


def get_world_size() -> int:
    """Number of processes in the group; 1 without a process group."""
    group = _initialized_group()
    return group.get_world_size() if group else 1


def shard_for_rank(items: Sequence[Result]) -> Sequence[Result]:
    """Items of this rank: every `world_size`-th one.

    Args:
        items: Items in the same order on all ranks.

    Returns:
        The share of this rank, in order.
    """
    return items[get_rank() :: get_world_size()]


def init_process_group(device_type: str, *, timeout: timedelta | None = None) -> None:
    """Join the process group that `torchrun` describes in the environment; the process then ends with its parent.

    Args:
        device_type: Type of the torch device; "cuda" adds NCCL to gloo.
        timeout: How long a rank waits for the others; None is torch's default.
    """
    if is_torchrun_worker():
        exit_with_parent()
    if torchrun_world_size() > 1 and not _initialized_group():
        import torch.distributed as dist

        # Before there is a group: functions of this module keep the group that exists when it is first imported (which
        # torch does later by itself) as a default, and the threads of a group that is never freed may abort the process
        # at its end.
        import_module("torch.distributed.nn.functional")
        dist.init_process_group("cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo", timeout=timeout)


def destroy_process_group() -> None:
    """Leave the process group, if there is one."""
    group = _initialized_group()
    if group:
        group.destroy_process_group()


def all_gather_object(value: object) -> list:
    """Gather a small picklable value from all ranks.

    Args:
        value: Value of this rank.

    Returns:
        The values of all ranks, in rank order.
    """
    if get_world_size() == 1:
        return [value]
    import torch.distributed as dist

    values: list = [None] * get_world_size()
    dist.all_gather_object(values, value)
    return values


def run_on_main(fn: Callable[[], Result]) -> Result:
    """Call a function on rank 0 and broadcast its result.

    Args:
        fn: Function that returns a small picklable value.

    Returns:
        The result of rank 0, on all ranks.

    Raises:
        StillmotionError: The function raised one on rank 0; it is raised on all ranks.
    """
    if get_world_size() == 1:
        return fn()
    import torch.distributed as dist

    message: list[Any] = [None]
    if get_rank() == 0:
        try:
            message = [(fn(), None)]
        except StillmotionError as error:
            message = [(None, error)]
    dist.broadcast_object_list(message, 0)
    result, failure = message[0]
    if failure is not None:
        raise failure
    return result


def run_on_all(fn: Callable[[], Result]) -> Result:
    """Call a function on every rank, and wait until it has succeeded on all of them.

    Args:
        fn: Function to call.

    Returns:
        The result of this rank.

    Raises:
        StillmotionError: The function raised one on some rank; the first is raised on all ranks.
    """
    result: Any = None
    failure = None
    try:
        result = fn()
    except StillmotionError as error:
        failure = error
    for error_of_rank in all_gather_object(failure):
        if error_of_rank is not None:
            raise error_of_rank
    return result


@contextmanager
def enter_on_main(make_context: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter a context on rank 0, such as the lock of a folder, and raise its error on all ranks.

    Args:
        make_context: Function that returns the context manager.
    """
    with ExitStack() as stack:

        def enter() -> None:
            stack.enter_context(make_context())

        run_on_main(enter)
        yield


def is_peer_failure(error: RuntimeError) -> bool:
    """Whether an error means that another rank has ended.

    Args:
        error: Error of a collective operation.
    """
    if get_world_size() == 1:
        return False
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or "gloo" in str(error)


def barrier() -> None:
    """Wait for all ranks."""
    if get_world_size() > 1:
        _initialized_group().barrier()


def _initialized_group() -> Any:
    """The module `torch.distributed` if there is a process group, else None; torch is not imported for that."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_initialized() else None
