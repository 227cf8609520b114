"""Activation checkpointing of backbone stages.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016 (arXiv:1604.06174). Beyond torch's own wrapper, a
block is recomputed with the weights of its forward pass, which a bilevel solver may have replaced for that pass, and
its batch norms update their statistics once.
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
    """Recompute each block of a backbone in the backward pass instead of storing its activations."""
    modules = dict(backbone.named_modules())
    for stage in (modules[name] for names in backbone.stage_prefixes for name in names if name in modules):
        for block in _blocks(stage):
            block.forward = _CheckpointedForward(block)


def _blocks(stage: nn.Module) -> list[nn.Module]:
    """The blocks of a sequential stage; a stage of single layers, which would save nothing, is one block."""
    blocks = list(stage) if isinstance(stage, nn.Sequential) else []
    return blocks if blocks and all(any(block.children()) for block in blocks) else [stage]


class _CheckpointedForward:
    """Replaces the forward method of a module."""

    def __init__(self, module: nn.Module) -> None:
        self._module, self._forward, self._recomputing = module, module.forward, False

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if self._recomputing or not torch.is_grad_enabled():
            return self._forward(*inputs, **options)
        weights = dict(self._module.named_parameters())

        def run(*tensors: Tensor) -> Any:
            pass_weights = dict(zip(weights, tensors[len(inputs) :], strict=True))
            self._recomputing = True
            try:
                return functional_call(self._module, pass_weights, tensors[: len(inputs)], options)
            finally:
                self._recomputing = False

        tracked = [norm.track_running_stats for norm in find_batch_norms(self._module)]
        return checkpoint(
            run,
            *inputs,
            *weights.values(),
            use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), _UpdateStatsOnce(self._module, tracked)),
        )


class _UpdateStatsOnce:
    """Context in which batch norms repeat their forward pass without updating running statistics.

    tracked: whether each norm updated its statistics in the forward pass.
    """

    def __init__(self, module: nn.Module, tracked: Sequence[bool]) -> None:
        self._norms, self._tracked = find_batch_norms(module), tracked

    def __enter__(self) -> None:
        self._before = [(norm.track_running_stats, norm.momentum) for norm in self._norms]
        for norm, tracks in zip(self._norms, self._tracked, strict=True):
            norm.track_running_stats, norm.momentum = tracks, 0.0

    def __exit__(self, *error: object) -> None:
        for norm, tracks, (before, momentum) in zip(self._norms, self._tracked, self._before, strict=True):
            norm.track_running_stats, norm.momentum = before, momentum
            if tracks and norm.training and norm.num_batches_tracked is not None:
                norm.num_batches_tracked -= 1
