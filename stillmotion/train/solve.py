"""One batch: the losses by name, and the gradient that the configured solver makes of them."""

import contextlib
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stillmotion.config import Config
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import Losses, Method
from stillmotion.methods.views import ViewsConfig
from stillmotion.nn.backbones import Backbone, second_order
from stillmotion.optim.bilevel import CHOSEN, SEAM, TWICE, Early, Weights, hypergradient
from stillmotion.train.precision import PRECISIONS, autocast, chosen

_BACKBONE = "online.backbone."


def solve(
    method: Method,
    clips: Tensor,
    config: Config,
    *,
    asked: Iterable[str] = ("static", "dynamic"),
    scale: float = 1.0,
) -> tuple[Losses, Weights]:
    """The losses of clips (b, v, 3, T, H, W), detached, and the gradient by weight name, averaged over ranks.

    The inner level's losses are those before its first step, the outer level's those after its last.
    asked: the halves that the clips show. scale: of the losses during backward passes, against underflow in float16.
    """
    outer_level = "both" if config.solver.how == "single-level" else "outer"
    found = Losses({}, {})

    def run(weights: Weights, level: str) -> Tensor:
        known = "features" if config.solver.how == "exact-head" else "seam"
        options = {"level": level, "asked": asked, known: weights.get(SEAM)}
        weights = {name: w for name, w in weights.items() if name != SEAM}
        twice = level == "inner" and config.solver.how in (*CHOSEN, *TWICE)
        with (
            autocast(clips.device, config.train.precision),
            second_order(method.online.backbone) if twice else contextlib.nullcontext(),
        ):
            losses: Losses = functional_call(method, weights, (clips,), options)
        found.keys.update(losses.keys)
        for name, value in losses.parts.items():
            found.parts.setdefault(name, value.detach())
        return torch.stack([value.float() for value in losses.parts.values()]).sum()

    gradient = hypergradient(
        lambda weights: run(weights, "inner"),
        lambda weights: run(weights, outer_level),
        dict(method.trainable()),
        config.solver,
        early=shared(method, clips, config),
        precision=PRECISIONS[chosen(clips.device, config.train.precision)],
        scale=scale,
    )
    return found, gradient


def shared(method: Method, clips: Tensor, config: Config) -> Early | None:
    """What both levels of the solver share: the online backbone, all of it but its last stage, or nothing."""
    if config.solver.how not in CHOSEN:
        return None
    if config.method.prediction.strict:
        raise StillmotionError(
            f"{config.solver.how} runs the backbone once for both levels, and strict prediction has its own; choose "
            "--solver.how itd-rmad, or first-order"
        )
    backbone = method.online.backbone
    last = len(backbone.stages) - 1
    inside = {name: name.removeprefix(_BACKBONE) for name in method.trainable() if name.startswith(_BACKBONE)}
    whole = config.solver.how == "exact-head"
    names = {name: own for name, own in inside.items() if whole or backbone.stage_of(own) < last}

    def run(weights: Weights) -> Tensor:
        replaced = {f"backbone.{own}": weights[name] for name, own in names.items()}
        with autocast(clips.device, config.train.precision):
            return functional_call(_Begun(backbone, config.method.views, whole=whole), replaced, (clips,))

    return Early(frozenset(names), run)


class _Begun(nn.Module):
    """A backbone up to its seam or its end, as a module, which is what `functional_call` calls."""

    def __init__(self, backbone: Backbone, views: ViewsConfig, *, whole: bool) -> None:
        super().__init__()
        self.backbone, self.views, self.whole = backbone, views, whole

    def forward(self, clips: Tensor) -> Tensor:
        run = self.backbone if self.whole else self.backbone.early
        return self.views.passed(run, clips.flatten(0, 1), clips.shape[1])
