"""Temporal-derivative views, their schedules (ViDiDi) and colors."""

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
    """Temporal derivative by forward differences (ViDiDi, §2.2).

    Frame t is Σ_i (-1)^(order-i) C(order, i) clips[t + i].

    Args:
        clips: Clips (…, C, T, H, W); T must be at least `num_frames + order`.
        order: Order of the derivative; 0 is the clip itself.
        num_frames: Frames to return, the first ones.

    Returns:
        Derivatives (…, C, num_frames, H, W).
    """
    available = clips.shape[-3]
    if order < 0 or num_frames < 1 or available < num_frames + order:
        raise StillmotionError(
            f"{num_frames} frames of the derivative of order {order} need a clip of {num_frames + order} frames, got "
            f"{available}. Increase --data.num-frames."
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
DerivativeColor = Literal["keep", "random-hue", "gray"]
BatchNormMode = Literal["joint", "separate"]
_MAX_ORDER = 2
# Purposes of random numbers; clips are sampled with (seed, epoch, index).
_RNG_ORDERS = 1
_RNG_COLORS = 2


class _SchedulePlan(NamedTuple):
    """Derivative orders of both sides of a pair.

    Attributes:
        epoch_orders: Orders epoch by epoch, repeated.
        batch_orders: Orders that a batch adds: a random one of these.
        alternates: Batches take them in turn, from a random start in each epoch.
    """

    epoch_orders: tuple[DerivativeOrders, ...]
    batch_orders: tuple[DerivativeOrders, ...] = ((0, 0),)
    alternates: bool = False


_ALTERNATING: tuple[DerivativeOrders, ...] = ((1, 1), (1, 0), (0, 1), (0, 0))  # Algorithm 1, lines 1-4
_EXTRA_DERIVATIVE: tuple[DerivativeOrders, ...] = ((0, 0), (1, 1))  # Algorithm 1, lines 5-6
# Rows of ViDiDi, Table 6. "Random augmentation" is read as independent orders of both sides, equally likely.
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
    """Temporal-derivative views.

    Attributes:
        schedule: When clips are replaced by temporal derivatives. base: never. alternate: RGB and first derivatives in
            alternating batches. full: ViDiDi. Others: ablations of ViDiDi, Table 6.
        derivative_color: Color of derivative views: keep, random-hue or gray.
        batch_norm: Batch norm over both clips of a pair (joint) or over each side separately (separate).
    """

    schedule: DerivativeSchedule = "base"
    derivative_color: DerivativeColor = "keep"
    batch_norm: BatchNormMode = "joint"

    def __post_init__(self) -> None:
        if self.schedule == "base" and self.derivative_color != "keep":
            raise StillmotionError(
                f"--method.views.derivative-color {self.derivative_color} needs derivative views. Remove it, or set "
                "--method.views.schedule alternate."
            )

    @property
    def extra_frames(self) -> int:
        """Frames that are read beyond those of a clip; the same for every order, so that all views are equally long."""
        return 0 if self.schedule == "base" else _MAX_ORDER

    def build(self) -> "TemporalViews":
        """Build the views."""
        return TemporalViews(self)


class TemporalViews:
    """Replaces clips by their temporal derivatives, as a schedule has it."""

    def __init__(self, config: ViewsConfig) -> None:
        self.config = config

    def draw_orders(self, *, seed: int, epoch: int, step: int) -> DerivativeOrders:
        """Return the derivative orders of both sides in a step; a function of the arguments, equal on all ranks.

        Args:
            seed: Seed of the run.
            epoch: Number of the epoch.
            step: Number of the step in the epoch.
        """
        plan = _PLANS[self.config.schedule]
        # The start of the alternation is random: if it were fixed, a log of every tenth step might see one kind only.
        rng = np.random.default_rng((seed, epoch, 0 if plan.alternates else step, _RNG_ORDERS))
        start = rng.integers(len(plan.batch_orders))
        added = plan.batch_orders[(start + step * plan.alternates) % len(plan.batch_orders)]
        first, second = zip(plan.epoch_orders[epoch % len(plan.epoch_orders)], added, strict=True)
        return sum(first), sum(second)

    def run_per_side(self, fn: Callable[[Tensor], Tensor], rows: Tensor, num_clips: int) -> Tensor:
        """Apply a network to all clips, in one pass per side if batch norms are separate.

        Args:
            fn: The network.
            rows: Its input (b·v, …), for b videos with v clips each.
            num_clips: Clips per video (v).
        """
        if self.config.batch_norm == "joint":
            return fn(rows)
        return forward_per_side(fn, rows.unflatten(0, (-1, num_clips))).flatten(0, 1)

    def draw_color_matrices(self, *, seed: int, epoch: int, indices: Iterable[int], num_clips: int) -> Tensor | None:
        """Return random color matrices (b, v, 3, 3) for the derivative of each clip; None if colors are kept.

        Args:
            seed: Seed of the run.
            epoch: Number of the epoch.
            indices: Indices of the batch's videos, which determine their random numbers.
            num_clips: Clips per video (v).
        """
        if self.config.derivative_color == "keep":
            return None
        angles = [
            np.random.default_rng((seed, epoch, int(i), _RNG_COLORS)).uniform(-np.pi, np.pi, num_clips) for i in indices
        ]
        angle = np.concatenate(angles)
        ones = np.ones_like(angle)
        matrices = color_matrices(ones, ones * (self.config.derivative_color == "random-hue"), angle)
        return torch.from_numpy(matrices.astype(np.float32)).unflatten(0, (-1, num_clips))

    def __call__(self, clips: Tensor, orders: DerivativeOrders, color_matrices: Tensor | None = None) -> Tensor:
        """Return the views of clips.

        Args:
            clips: Clips (b, v, 3, T + extra_frames, H, W).
            orders: Derivative orders of both sides.
            color_matrices: Result of `draw_color_matrices`.

        Returns:
            Views (b, v, 3, T, H, W).
        """
        extra_frames = self.config.extra_frames
        if extra_frames == 0:
            return clips
        num_frames = clips.shape[-3] - extra_frames
        sides = [
            temporal_derivative(clip, orders[i % 2], num_frames=num_frames) for i, clip in enumerate(clips.unbind(1))
        ]
        if color_matrices is not None:
            for i in range(len(sides)):
                if orders[i % 2] > 0:
                    sides[i] = torch.einsum("bij,bjthw->bithw", color_matrices[:, i].to(clips), sides[i])
        return torch.stack(sides, 1)
