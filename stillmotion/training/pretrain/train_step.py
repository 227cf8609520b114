"""One batch: the losses by name, and the gradient that the configured solver makes of them."""

import contextlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Method, MethodOutput
from stillmotion.methods.views import ViewsConfig
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
from stillmotion.utils.device import AUTOCAST_DTYPES, autocast, resolve_precision

_BACKBONE_PREFIX = "online.backbone."


def compute_gradients(
    method: Method,
    clips: Tensor,
    config: PretrainConfig,
    *,
    components: Iterable[str] = ("static", "dynamic"),
    loss_scale: float = 1.0,
) -> tuple[MethodOutput, ParamDict]:
    """The losses of clips (b, v, 3, T, H, W), detached, and the gradient by weight name, averaged over ranks.

    The inner level's losses are those before its first step, the outer level's those after its last.
    components: the halves that the clips show. scale: of the losses during backward passes, against underflow in float16.
    """
    outer_level = "both" if config.solver.name == "single-level" else "outer"
    found = MethodOutput({}, {})

    def run(weights: ParamDict, level: str) -> Tensor:
        known = "features" if config.solver.name == "exact-projector" else "early_features"
        options = {"level": level, "components": components, known: weights.get(EARLY_FEATURES)}
        weights = {name: w for name, w in weights.items() if name != EARLY_FEATURES}
        twice = level == "inner" and config.solver.name in (*LATE_LAYER_SOLVERS, *SECOND_ORDER_SOLVERS)
        with (
            autocast(clips.device, config.train.precision),
            double_backward_mode(method.online.backbone) if twice else contextlib.nullcontext(),
        ):
            losses: MethodOutput = functional_call(method, weights, (clips,), options)
        found.keys.update(losses.keys)
        for name, value in losses.losses.items():
            found.losses.setdefault(name, value.detach())
        return torch.stack([value.float() for value in losses.losses.values()]).sum()

    gradient = hypergradient(
        lambda weights: run(weights, "inner"),
        lambda weights: run(weights, outer_level),
        dict(method.trainable_parameters()),
        config.solver,
        shared_prefix=build_shared_prefix(method, clips, config),
        autocast_dtype=AUTOCAST_DTYPES[resolve_precision(clips.device, config.train.precision)],
        loss_scale=loss_scale,
    )
    return found, gradient


def build_shared_prefix(method: Method, clips: Tensor, config: PretrainConfig) -> SharedPrefix | None:
    """What both levels of the solver share: the online backbone, all of it but its last stage, or nothing."""
    if config.solver.name not in LATE_LAYER_SOLVERS:
        return None
    if config.method.prediction.per_frame_kernels:
        raise StillmotionError(
            f"{config.solver.name} runs the backbone once for both levels, and strict prediction has its own; choose "
            "--solver.name itd-rmad, or first-order"
        )
    backbone = method.online.backbone
    last = len(backbone.stage_prefixes) - 1
    inside = {
        name: name.removeprefix(_BACKBONE_PREFIX)
        for name in method.trainable_parameters()
        if name.startswith(_BACKBONE_PREFIX)
    }
    whole = config.solver.name == "exact-projector"
    names = {name: own for name, own in inside.items() if whole or backbone.stage_index(own) < last}

    def run(weights: ParamDict) -> Tensor:
        replaced = {f"backbone.{own}": weights[name] for name, own in names.items()}
        with autocast(clips.device, config.train.precision):
            return functional_call(_BackbonePrefix(backbone, config.method.views, whole=whole), replaced, (clips,))

    return SharedPrefix(frozenset(names), run)


class _BackbonePrefix(nn.Module):
    """A backbone up to its seam or its end, as a module, which is what `functional_call` calls."""

    def __init__(self, backbone: Backbone, views: ViewsConfig, *, whole: bool) -> None:
        super().__init__()
        self.backbone, self.views, self.whole = backbone, views, whole

    def forward(self, clips: Tensor) -> Tensor:
        run = self.backbone if self.whole else self.backbone.forward_trunk
        return self.views.run_per_side(run, clips.flatten(0, 1), clips.shape[1])
