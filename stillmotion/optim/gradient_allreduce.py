"""Gradients averaged over ranks in buckets, each on its way while the backward pass makes the next.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020 (arXiv:2006.15704), for
gradients that are asked for by `torch.autograd.grad` and belong to no module.
"""

from collections.abc import Mapping
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from stillmotion.distributed.process_group import get_world_size

BUCKET_BYTES = 25 * 2**20  # bytes


def all_reduced_gradients(
    loss: Tensor,
    weights: Mapping[str, Tensor],
    *,
    local_names: frozenset[str] = frozenset(),
    bucket_bytes: int = BUCKET_BYTES,
) -> dict[str, Tensor]:
    """The gradient of a loss by weight name, the mean over ranks; zero where the loss does not depend on a weight.

    loss: this rank's mean. own: names whose gradient stays this rank's. bucket: bytes that are sent at a time.
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
    found = dict(zip(weights, grads, strict=True))
    return found if buckets is None else found | buckets.wait()


class _GradientBuckets:
    """What has come of a backward pass, and what of it is on its way.

    Gradients come from the last layers to the first; a bucket is sent once it is full and those before it are sent, so
    that all ranks send in one order.
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
        found = self._ready.pop(name, None)
        return torch.zeros_like(self._weights[name]) if found is None else found

    def remove_hooks(self) -> None:
        """Stop listening."""
        for hook in self._hooks:
            hook.remove()

    def wait(self) -> dict[str, Tensor]:
        """Every weight's gradient, once all have arrived; what no gradient came of is sent as zeros."""
        while len(self._sent) < len(self._names):
            self._send()
        found: dict[str, Tensor] = {}
        for names, (flat, work) in zip(self._names, self._sent, strict=True):
            work.wait()
            flat /= get_world_size()
            shapes = [self._weights[name].shape for name in names]
            parts = flat.split([shape.numel() for shape in shapes])
            found |= {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return {name: found[name] for name in self._weights}
