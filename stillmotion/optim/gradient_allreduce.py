"""Gradients averaged over ranks in buckets, overlapped with the backward pass.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020 (arXiv:2006.15704), for
gradients from `torch.autograd.grad`, which belong to no module.
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from stillmotion.distributed.process_group import get_world_size

BUCKET_BYTES = 25 * 2**20


def all_reduced_gradients(
    loss: Tensor,
    weights: Mapping[str, Tensor],
    *,
    local_names: frozenset[str] = frozenset(),
    bucket_bytes: int = BUCKET_BYTES,
) -> dict[str, Tensor]:
    """Compute the gradient of a loss by weight name, averaged over ranks; zero for weights that the loss does not use.

    Args:
        loss: Mean loss of this rank.
        weights: Weights by name.
        local_names: Names of weights whose gradient is not averaged.
        bucket_bytes: Size of the messages.
    """
    buckets = (
        _GradientBuckets({k: w for k, w in weights.items() if k not in local_names}, bucket_bytes)
        if get_world_size() > 1
        else None
    )
    try:
        grads = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    finally:
        if buckets is not None:
            buckets.remove_hooks()
    gradients = dict(zip(weights, grads, strict=True))
    return gradients if buckets is None else gradients | buckets.wait()


class _GradientBuckets:
    """Gradients of a backward pass, sent in buckets.

    Gradients arrive from the last layer to the first; a bucket is sent once it is full and the buckets before it are
    sent, so that all ranks send in the same order.
    """

    def __init__(self, weights: Mapping[str, Tensor], bucket_bytes: int) -> None:
        self._weights, self._ready = weights, dict[str, Tensor]()
        self._names: list[list[str]] = []
        self._sent: list[tuple[Tensor, dist.Work]] = []
        filled, kind = bucket_bytes, None
        for name, weight in reversed(list(weights.items())):
            if filled >= bucket_bytes or weight.dtype != kind:
                self._names.append([])
                filled, kind = 0, weight.dtype
            self._names[-1].append(name)
            filled += weight.nbytes
        self._hooks = [weight.register_hook(partial(self._on_gradient, name)) for name, weight in weights.items()]

    def _on_gradient(self, name: str, gradient: Tensor) -> None:
        self._ready[name] = gradient.detach()
        while len(self._sent) < len(self._names) and all(k in self._ready for k in self._names[len(self._sent)]):
            self._send()

    def _send(self) -> None:
        names = self._names[len(self._sent)]
        flat = torch.cat([self._gradient(name).flatten() for name in names])
        self._sent.append((flat, dist.all_reduce(flat, async_op=True)))

    def _gradient(self, name: str) -> Tensor:
        gradient = self._ready.pop(name, None)
        return torch.zeros_like(self._weights[name]) if gradient is None else gradient

    def remove_hooks(self) -> None:
        """Remove the hooks of the weights."""
        for hook in self._hooks:
            hook.remove()

    def wait(self) -> dict[str, Tensor]:
        """Wait for all messages and return the gradients; weights without a gradient are sent as zeros."""
        while len(self._sent) < len(self._names):
            self._send()
        gradients: dict[str, Tensor] = {}
        for names, (flat, work) in zip(self._names, self._sent, strict=True):
            work.wait()
            flat /= get_world_size()
            shapes = [self._weights[name].shape for name in names]
            parts = flat.split([shape.numel() for shape in shapes])
            gradients |= {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return {name: gradients[name] for name in self._weights}
