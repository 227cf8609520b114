"""What ranks say to each other; on one process every function here is the identity."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

# Before there is a group: its functions keep the one that there is when it is first imported (which torch does by
# itself, later) as their default, and the threads of a group that is never freed may abort the process at its end.
import torch.distributed.nn.functional
from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.parent import end_with_parent, is_rank

Result = TypeVar("Result")


def rank() -> int:
    """This process's number, 0 when alone."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def start(device_type: str, *, patience: timedelta | None = None) -> None:
    """Join the group that `torchrun` describes in the environment: nccl for what is on CUDA, gloo for all else.

    Its processes end with the agent that started them.
    patience: how long a rank waits for the others; None as torch has it, minutes.
    """
    if is_rank():
        end_with_parent()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if device_type == "cuda" else "gloo", timeout=patience)


def stop() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def gather(x: Tensor) -> Tensor:
    """All ranks' x joined along the first axis in rank order; equal shapes. Gradients of any order reach every rank."""
    if world() == 1:
        return x
    return _Gather.apply(x)


@torch.no_grad()
def gather_values(x: Tensor) -> Tensor:
    """`gather` without gradient."""
    if world() == 1:
        return x.detach()
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world())]
    dist.all_gather(parts, x.detach().contiguous())
    return torch.cat(parts)


@torch.no_grad()
def gather_rows(x: Tensor, counts: Sequence[int]) -> Tensor:
    """All ranks' rows of x joined in rank order, where each rank has another number of them, as all know."""
    if world() == 1:
        return x.detach()
    padded = x.new_zeros(max(counts), *x.shape[1:])
    padded[: len(x)] = x
    parts = gather_values(padded).split(max(counts))
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _Gather(torch.autograd.Function):
    """`gather_values` whose gradient is the sum of what every rank's loss asks of this rank's part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return gather_values(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _Sum.apply(grads[0]).chunk(world())[rank()]


class _Sum(torch.autograd.Function):
    """The sum over ranks. Its gradient is the sum of what all ranks ask of it: itself, however often it is taken."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _Sum.apply(grads[0])


@torch.no_grad()
def average_(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its mean over ranks: one message per dtype."""
    if world() == 1:
        return
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for t in tensors:
        by_type.setdefault(t.dtype, []).append(t)
    for group in by_type.values():
        flat = torch.cat([t.flatten() for t in group])
        dist.all_reduce(flat)
        flat /= world()
        for t, part in zip(group, flat.split([t.numel() for t in group]), strict=True):
            t.copy_(part.view_as(t))


@torch.no_grad()
def broadcast_(tensors: Iterable[Tensor]) -> None:
    """Give every rank the first one's values."""
    if world() > 1:
        for t in tensors:
            dist.broadcast(t, 0)


def gather_objects(value: object) -> list:
    """Every rank's small Python value, in rank order."""
    if world() == 1:
        return [value]
    values: list = [None] * world()
    dist.all_gather_object(values, value)
    return values


def on_first(work: Callable[[], Result]) -> Result:
    """What `work` returns on the first rank, told to all; what a user can mend there is raised on every rank.

    What it returns is small, and can be pickled.
    """
    if world() == 1:
        return work()
    told: list[Any] = [None]
    if rank() == 0:
        try:
            told = [(work(), None)]
        except StillmotionError as error:
            told = [(None, error)]
    dist.broadcast_object_list(told, 0)
    found, failure = told[0]
    if failure is not None:
        raise failure
    return found


def everywhere(work: Callable[[], Result]) -> Result:
    """What `work` returns on this rank, once it has gone well on all; what a user can mend on one is raised on all."""
    found: Any = None
    failure = None
    try:
        found = work()
    except StillmotionError as error:
        failure = error
    for failed in gather_objects(failure):
        if failed is not None:
            raise failed
    return found


@contextmanager
def first_within(opened: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    """What the first rank opens, such as the lock of a folder, is open; where it cannot be, all ranks end with that."""
    with ExitStack() as holding:

        def enter() -> None:
            holding.enter_context(opened())

        on_first(enter)
        yield


def is_loss(error: RuntimeError) -> bool:
    """Whether an error says that another rank is gone."""
    return world() > 1 and (isinstance(error, dist.DistError) or "gloo" in str(error))


def barrier() -> None:
    if world() > 1:
        dist.barrier()
