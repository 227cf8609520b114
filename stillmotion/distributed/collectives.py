"""Collectives of tensors; in a single process every function here is the identity."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from stillmotion.distributed.process_group import get_rank, get_world_size


def all_gather(x: Tensor) -> Tensor:
    """Concatenate tensors of all ranks along the first axis, with gradients of any order.

    Args:
        x: Tensor (n, ...) of the same shape on all ranks.

    Returns:
        Tensor (world_size · n, ...) in rank order.
    """
    if get_world_size() == 1:
        return x
    return _AllGather.apply(x)


@torch.no_grad()
def all_gather_no_grad(x: Tensor) -> Tensor:
    """`all_gather` without gradients.

    Args:
        x: Tensor (n, ...) of the same shape on all ranks.

    Returns:
        Tensor (world_size · n, ...) in rank order.
    """
    if get_world_size() == 1:
        return x.detach()
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(get_world_size())]
    dist.all_gather(parts, x.detach().contiguous())
    return torch.cat(parts)


@torch.no_grad()
def all_gather_uneven(x: Tensor, counts: Sequence[int]) -> Tensor:
    """Concatenate tensors with different numbers of rows, without gradients.

    Args:
        x: Tensor (counts[rank], ...) of this rank.
        counts: Number of rows of every rank.

    Returns:
        Tensor (sum(counts), ...) in rank order.
    """
    if get_world_size() == 1:
        return x.detach()
    padded = x.new_zeros(max(counts), *x.shape[1:])
    padded[: len(x)] = x
    parts = all_gather_no_grad(padded).split(max(counts))
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _AllGather(torch.autograd.Function):
    """`all_gather_no_grad` whose gradient is the sum of the gradients of all ranks for this rank's part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return all_gather_no_grad(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _AllReduceSum.apply(grads[0]).chunk(get_world_size())[get_rank()]


class _AllReduceSum(torch.autograd.Function):
    """The sum over ranks. Its gradient is the sum of the gradients over ranks: the same function again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return _AllReduceSum.apply(grads[0])


@torch.no_grad()
def all_reduce_mean_(tensors: Iterable[Tensor]) -> None:
    """Replace each tensor by its mean over ranks, with one all-reduce per dtype.

    Args:
        tensors: Tensors of the same shapes on all ranks; changed in place.
    """
    if get_world_size() == 1:
        return
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for t in tensors:
        by_type.setdefault(t.dtype, []).append(t)
    for group in by_type.values():
        flat = torch.cat([t.flatten() for t in group])
        dist.all_reduce(flat)
        flat /= get_world_size()
        for t, part in zip(group, flat.split([t.numel() for t in group]), strict=True):
            t.copy_(part.view_as(t))


@torch.no_grad()
def broadcast_(tensors: Iterable[Tensor]) -> None:
    """Copy the values of rank 0 to all ranks.

    Args:
        tensors: Tensors of the same shapes on all ranks; changed in place.
    """
    if get_world_size() > 1:
        for t in tensors:
            dist.broadcast(t, 0)
