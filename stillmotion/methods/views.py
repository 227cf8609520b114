"""Temporal derivatives of clips by forward differences (ViDiDi, §2.2)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.transforms.parameters import color_matrices
from stillmotion.errors import StillmotionError
from stillmotion.models.batch_norm import forward_per_side


def temporal_derivative(clips: Tensor, order: int, *, num_frames: int) -> Tensor:
    """The forward difference of this order in time: frame t is Σ_i (-1)^(order-i) C(order, i) clips[t + i].

    clips: (…, C, T, H, W). frames: how many are kept, the first ones; T must be at least frames + order.
    """
    there = clips.shape[-3]
    if order < 0 or num_frames < 1 or there < num_frames + order:
        raise StillmotionError(
            f"{num_frames} frames of the derivative of order {order} need a clip of {num_frames + order}; it has {there} "
            "(raise --data.num-frames)"
        )
    return torch.diff(clips.narrow(-3, 0, num_frames + order), n=order, dim=-3)


DerivativeOrders = tuple[int, int]
DerivativeSchedule = Literal[
    "base",
    "random-1st",
    "random-1st-2nd",
    "reversed",
    "schedule-1st",
    "schedule-1st-mix",
    "schedule-1st-2nd",
    "schedule-1st-2nd-mix",
    "full",
    "alternate",
]
LossRouting = Literal["all", "static-on-rgb", "separate"]
DerivativeColor = Literal["keep", "random-hue", "gray"]
BatchNormMode = Literal["joint", "separate"]
_MAX_ORDER = 2
# These set the draws of orders and of colours apart from those of clips, which are made of (seed, epoch, index).
_RNG_ORDERS = 1
_RNG_COLORS = 2


class _SchedulePlan(NamedTuple):
    """epochs: orders of both sides, epoch by epoch, over and over. added: a batch adds one of these.

    alternates: batches take them in turn, from one that is drawn for the epoch; else each batch draws its own.
    """

    epoch_orders: tuple[DerivativeOrders, ...]
    batch_orders: tuple[DerivativeOrders, ...] = ((0, 0),)
    alternates: bool = False


_ALTERNATING: tuple[DerivativeOrders, ...] = ((1, 1), (1, 0), (0, 1), (0, 0))  # Algorithm 1, lines 1-4
_EXTRA_DERIVATIVE: tuple[DerivativeOrders, ...] = ((0, 0), (1, 1))  # Algorithm 1, lines 5-6
# The rows of Table 6. "Random augmentation" is read as a draw for each side, all orders being equally likely.
_PLANS: dict[str, _SchedulePlan] = {
    "base": _SchedulePlan(((0, 0),)),
    "random-1st": _SchedulePlan(((0, 0),), tuple(product((0, 1), (0, 1)))),
    "random-1st-2nd": _SchedulePlan(((0, 0),), tuple(product((0, 1, 2), (0, 1, 2)))),
    "reversed": _SchedulePlan(_ALTERNATING[::-1], _EXTRA_DERIVATIVE),
    "schedule-1st": _SchedulePlan(((1, 1), (0, 0))),
    "schedule-1st-mix": _SchedulePlan(((1, 1), (1, 0), (0, 0))),
    "schedule-1st-2nd": _SchedulePlan(((1, 1), (0, 0)), _EXTRA_DERIVATIVE),
    "schedule-1st-2nd-mix": _SchedulePlan(((1, 1), (1, 0), (0, 0)), _EXTRA_DERIVATIVE),
    "full": _SchedulePlan(_ALTERNATING, _EXTRA_DERIVATIVE),
    "alternate": _SchedulePlan(((0, 0),), ((0, 0), (1, 1)), alternates=True),
}


@dataclass(frozen=True)
class ViewsConfig:
    """Which derivatives in time the encoder is shown, and which half of its embedding is asked for on which.

    Attributes:
        schedule: When clips are replaced by temporal derivatives. base: never. alternate: RGB and first derivatives in
            alternating batches. full: ViDiDi. Others: ablations of ViDiDi, Table 6.
        loss_routing: Which component's loss is computed on which view. all: both on every view. static-on-rgb: the
            static loss on RGB clips only. separate: also the dynamic loss on derivatives only.
        derivative_color: Color of derivative views: keep, random-hue or gray.
        batch_norm: Batch norm over both clips of a pair (joint) or over each side separately (separate).
    """

    schedule: DerivativeSchedule = "base"
    loss_routing: LossRouting = "all"
    derivative_color: DerivativeColor = "keep"
    batch_norm: BatchNormMode = "joint"

    def __post_init__(self) -> None:
        if self.schedule == "base" and (self.loss_routing, self.derivative_color) != ("all", "keep"):
            raise StillmotionError(
                f"views.loss_routing is {self.loss_routing} and views.derivative_color {self.derivative_color}, but no view is a derivative: leave them "
                "out, or choose a schedule that has some (--method.views.schedule alternate)"
            )

    @property
    def extra_frames(self) -> int:
        """How many frames are read beyond those of a clip; as many for every order, so that all views are as long."""
        return 0 if self.schedule == "base" else _MAX_ORDER

    def draw_orders(self, *, seed: int, epoch: int, step: int) -> DerivativeOrders:
        """The orders of both sides in a step of an epoch: a function of these numbers, the same on all ranks."""
        plan = _PLANS[self.schedule]
        # The first turn is drawn: if it were fixed, a log of every tenth step might see the same turn always.
        drawn = np.random.default_rng((seed, epoch, 0 if plan.alternates else step, _RNG_ORDERS)).integers(
            len(plan.batch_orders)
        )
        added = plan.batch_orders[(drawn + step * plan.alternates) % len(plan.batch_orders)]
        first, second = zip(plan.epoch_orders[epoch % len(plan.epoch_orders)], added, strict=True)
        return sum(first), sum(second)

    def routed_components(self, orders: DerivativeOrders) -> tuple[str, ...]:
        """The halves that are asked for where the sides show these orders."""
        frames = not any(orders)
        static = frames or self.loss_routing == "all"
        dynamic = not frames or self.loss_routing != "separate"
        return ("static",) * static + ("dynamic",) * dynamic

    def run_per_side(self, fn: Callable[[Tensor], Tensor], rows: Tensor, num_clips: int) -> Tensor:
        """What `fn` makes of rows (b·v, …), by as many passes as there are sides where they are normed apart.

        num_clips: v, of each video.
        """
        if self.batch_norm == "joint":
            return fn(rows)
        return forward_per_side(fn, rows.unflatten(0, (-1, num_clips))).flatten(0, 1)

    def draw_color_matrices(self, *, seed: int, epoch: int, indices: Iterable[int], num_clips: int) -> Tensor | None:
        """What the colours of each clip's derivative are multiplied by, (b, v, 3, 3); None leaves them.

        indices: the batch's videos. With the seed and the epoch, a video's number fixes what is drawn for its clips.
        """
        if self.derivative_color == "keep":
            return None
        drawn = [
            np.random.default_rng((seed, epoch, int(i), _RNG_COLORS)).uniform(-np.pi, np.pi, num_clips) for i in indices
        ]
        angle = np.concatenate(drawn)
        even = np.ones_like(angle)
        matrices = color_matrices(even, even * (self.derivative_color == "random-hue"), angle)
        return torch.from_numpy(matrices.astype(np.float32)).unflatten(0, (-1, num_clips))

    def __call__(self, clips: Tensor, orders: DerivativeOrders, color_matrices: Tensor | None = None) -> Tensor:
        """The views of clips (b, v, 3, T + extra, H, W): (b, v, 3, T, H, W). colours: of `color_matrices`."""
        if self.extra_frames == 0:
            return clips
        frames = clips.shape[-3] - self.extra_frames
        sides = [temporal_derivative(clip, orders[i % 2], num_frames=frames) for i, clip in enumerate(clips.unbind(1))]
        if color_matrices is not None:
            for i in range(len(sides)):
                if orders[i % 2] > 0:
                    sides[i] = torch.einsum("bij,bjthw->bithw", color_matrices[:, i].to(clips), sides[i])
        return torch.stack(sides, 1)
