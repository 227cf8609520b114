"""One batch: the losses by name, and the gradient that the configured solver makes of them."""

import contextlib
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.func import functional_call

from stillmotion.config import Config
from stillmotion.methods.method import Losses, Method
from stillmotion.nn.backbones import second_order
from stillmotion.optim.bilevel import Weights, hypergradient
from stillmotion.train.precision import PRECISIONS, autocast

_TWICE = ("itd-rmad", "aid-cg", "aid-nmn")  # solvers that differentiate twice


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
        with autocast(clips.device, config.train.precision):
            losses: Losses = functional_call(method, weights, (clips,), {"level": level, "asked": asked})
        found.keys.update(losses.keys)
        for name, value in losses.parts.items():
            found.parts.setdefault(name, value.detach())
        return torch.stack([value.float() for value in losses.parts.values()]).sum()

    twice = config.solver.how in _TWICE
    with second_order(method.online.backbone) if twice else contextlib.nullcontext():
        gradient = hypergradient(
            lambda weights: run(weights, "inner"),
            lambda weights: run(weights, outer_level),
            dict(method.trainable()),
            config.solver,
            precision=PRECISIONS[config.train.precision],
            scale=scale,
        )
    return found, gradient
