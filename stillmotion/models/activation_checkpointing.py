"""Activation checkpointing: blocks that keep their input alone, and compute the rest again in the backward pass.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016 (arXiv:1604.06174). Unlike torch's own wrapper alone,
a block is computed again with the very weights that it had, which a bi-level solver may have replaced for one pass, and
its batch norms take their statistics once.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from stillmotion.models.backbones.base import Backbone
from stillmotion.models.batch_norm import find_batch_norms


def apply_activation_checkpointing(backbone: Backbone) -> None:
    """Let each block of a backbone's stages forget what its input can give again."""
    modules = dict(backbone.named_modules())
    for part in (modules[name] for stage in backbone.stage_prefixes for name in stage if name in modules):
        for block in _blocks(part):
            block.forward = _CheckpointedForward(block)


def _blocks(part: nn.Module) -> list[nn.Module]:
    """The blocks that a stage is a row of; a stage of single layers, which would forget nothing, is one itself."""
    parts = list(part) if isinstance(part, nn.Sequential) else []
    return parts if parts and all(any(block.children()) for block in parts) else [part]


class _CheckpointedForward:
    """In place of a module's forward."""

    def __init__(self, part: nn.Module) -> None:
        self._part, self._forward, self._recomputing = part, part.forward, False

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if self._recomputing or not torch.is_grad_enabled():
            return self._forward(*inputs, **options)
        weights = dict(self._part.named_parameters())

        def run(*given: Tensor) -> Any:
            own = dict(zip(weights, given[len(inputs) :], strict=True))
            self._recomputing = True
            try:
                return functional_call(self._part, own, given[: len(inputs)], options)
            finally:
                self._recomputing = False

        tracked = [norm.track_running_stats for norm in find_batch_norms(self._part)]
        return checkpoint(
            run,
            *inputs,
            *weights.values(),
            use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), _UpdateStatsOnce(self._part, tracked)),
        )


class _UpdateStatsOnce:
    """Within it batch norms do what they did, but for their running statistics; each gradient that is taken enters it.

    tracked: which of the norms moved theirs.
    """

    def __init__(self, part: nn.Module, tracked: Sequence[bool]) -> None:
        self._norms, self._tracked = find_batch_norms(part), tracked

    def __enter__(self) -> None:
        self._before = [(norm.track_running_stats, norm.momentum) for norm in self._norms]
        for norm, tracks in zip(self._norms, self._tracked, strict=True):
            norm.track_running_stats, norm.momentum = tracks, 0.0

    def __exit__(self, *raised: object) -> None:
        for norm, tracks, (own, momentum) in zip(self._norms, self._tracked, self._before, strict=True):
            norm.track_running_stats, norm.momentum = own, momentum
            if tracks and norm.training and norm.num_batches_tracked is not None:
                norm.num_batches_tracked -= 1
