"""Losses and gradients of one pretraining batch under the configured solver."""

import contextlib

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Method, MethodOutput
from stillmotion.methods.views import TemporalViews
from stillmotion.models.backbones import Backbone, double_backward_mode
from stillmotion.optim.bilevel import (
    EARLY_FEATURES,
    LATE_LAYER_SOLVERS,
    SECOND_ORDER_SOLVERS,
    ParamDict,
    SharedPrefix,
    hypergradient,
)
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.utils.device import autocast

_BACKBONE_PREFIX = "online.backbone."


def compute_gradients(
    method: Method, clips: Tensor, config: PretrainConfig, *, loss_scale: float = 1.0
) -> tuple[MethodOutput, ParamDict]:
    """Compute the losses of a batch and the solver's gradient.

    Args:
        method: The method.
        clips: Clips (b, v, 3, T, H, W).
        config: Configuration of the run.
        loss_scale: Scale of the losses in backward passes, against underflow in float16.

    Returns:
        Detached losses (the inner level's before its first step, the outer level's after the last) and the gradient by
        parameter name, averaged over ranks.
    """
    outer_level = "both" if config.solver.name == "single-level" else "outer"
    output = MethodOutput({}, {})

    def run(weights: ParamDict, level: str) -> Tensor:
        argument = "features" if config.solver.name == "exact-projector" else "early_features"
        options = {"level": level, argument: weights.get(EARLY_FEATURES)}
        weights = {name: w for name, w in weights.items() if name != EARLY_FEATURES}
        twice = level == "inner" and config.solver.name in (*LATE_LAYER_SOLVERS, *SECOND_ORDER_SOLVERS)
        with (
            autocast(clips.device, config.train.precision),
            double_backward_mode(method.online.backbone) if twice else contextlib.nullcontext(),
        ):
            result: MethodOutput = functional_call(method, weights, (clips,), options)
        output.keys.update(result.keys)
        for name, value in result.losses.items():
            output.losses.setdefault(name, value.detach())
        return torch.stack([value.float() for value in result.losses.values()]).sum()

    gradient = hypergradient(
        lambda weights: run(weights, "inner"),
        lambda weights: run(weights, outer_level),
        dict(method.trainable_parameters()),
        config.solver,
        shared_prefix=build_shared_prefix(method, clips, config),
        loss_scale=loss_scale,
    )
    return output, gradient


def build_shared_prefix(method: Method, clips: Tensor, config: PretrainConfig) -> SharedPrefix | None:
    """Return the backbone part that both solver levels share: all of it, all but its last stage, or None.

    Args:
        method: The method.
        clips: Clips (b, v, 3, T, H, W).
        config: Configuration of the run.
    """
    if config.solver.name not in LATE_LAYER_SOLVERS:
        return None
    if config.method.prediction.per_frame_kernels:
        raise StillmotionError(
            f"Solver {config.solver.name} shares one backbone pass between both levels and cannot be combined with "
            "--method.prediction.per-frame-kernels. Use --solver.name itd-rmad or first-order."
        )
    backbone = method.online.backbone
    last = len(backbone.stage_prefixes) - 1
    local_names = {
        name: name.removeprefix(_BACKBONE_PREFIX)
        for name in method.trainable_parameters()
        if name.startswith(_BACKBONE_PREFIX)
    }
    whole = config.solver.name == "exact-projector"
    names = {name: local for name, local in local_names.items() if whole or backbone.stage_index(local) < last}

    def run(weights: ParamDict) -> Tensor:
        replaced = {f"backbone.{local}": weights[name] for name, local in names.items()}
        with autocast(clips.device, config.train.precision):
            return functional_call(_BackbonePrefix(backbone, method.views, whole=whole), replaced, (clips,))

    return SharedPrefix(frozenset(names), run)


class _BackbonePrefix(nn.Module):
    """A whole backbone, or one without its last stage, as a module for `functional_call`."""

    def __init__(self, backbone: Backbone, views: TemporalViews, *, whole: bool) -> None:
        super().__init__()
        self.backbone, self.views, self.whole = backbone, views, whole

    def forward(self, clips: Tensor) -> Tensor:
        run = self.backbone if self.whole else self.backbone.forward_trunk
        return self.views.run_per_side(run, clips.flatten(0, 1), clips.shape[1])
