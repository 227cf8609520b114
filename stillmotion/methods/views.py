"""Derivative views: clips of which an encoder sees the frames or their change in time (ViDiDi, Algorithm 1).

Every clip belongs to one of two sides, V and V'; all clips of a side in a batch show the same order of derivative.
With more than two clips of a video the sides take turns: clips 1, 3, … are V and clips 2, 4, … are V'. An inner level
that looks at the first clip only sees V.

Networks are evaluated on frames as they are, by batch-norm statistics that were averaged over all views. On the demo's
SimCLR recipe (one seed) statistics taken anew from frames alone moved no linear probe of `whole` by more than 0.012.
"""

from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.functional.derivative import derivative

Orders = tuple[int, int]
Schedule = Literal[
    "base",
    "random-1st",
    "random-1st-2nd",
    "reversed",
    "schedule-1st",
    "schedule-1st-mix",
    "schedule-1st-2nd",
    "schedule-1st-2nd-mix",
    "full",
]

_HIGHEST = 2
_DRAWN = 1  # sets these draws apart from those of clips, which are made of (seed, epoch, index)


class _Plan(NamedTuple):
    """epochs: orders of both sides, epoch by epoch, over and over. added: a batch adds one of these at random."""

    epochs: tuple[Orders, ...]
    added: tuple[Orders, ...] = ((0, 0),)


_ALTERNATING: tuple[Orders, ...] = ((1, 1), (1, 0), (0, 1), (0, 0))  # Algorithm 1, lines 1-4
_ONCE_MORE: tuple[Orders, ...] = ((0, 0), (1, 1))  # Algorithm 1, lines 5-6

# The rows of Table 6. "Random augmentation" is read as a draw for each side, all orders being equally likely.
_PLANS: dict[str, _Plan] = {
    "base": _Plan(((0, 0),)),
    "random-1st": _Plan(((0, 0),), tuple(product((0, 1), (0, 1)))),
    "random-1st-2nd": _Plan(((0, 0),), tuple(product((0, 1, 2), (0, 1, 2)))),
    "reversed": _Plan(_ALTERNATING[::-1], _ONCE_MORE),
    "schedule-1st": _Plan(((1, 1), (0, 0))),
    "schedule-1st-mix": _Plan(((1, 1), (1, 0), (0, 0))),
    "schedule-1st-2nd": _Plan(((1, 1), (0, 0)), _ONCE_MORE),
    "schedule-1st-2nd-mix": _Plan(((1, 1), (1, 0), (0, 0)), _ONCE_MORE),
    "full": _Plan(_ALTERNATING, _ONCE_MORE),
}


@dataclass(frozen=True)
class ViewsConfig:
    """Which derivatives in time the encoder is shown.

    Attributes:
        schedule: base shows frames as they are; full is ViDiDi; the others are the ablations of its Table 6.
    """

    schedule: Schedule = "base"

    @property
    def extra(self) -> int:
        """How many frames are read beyond those of a clip; as many for every order, so that all views are as long."""
        return 0 if self.schedule == "base" else _HIGHEST

    def orders(self, *, seed: int, epoch: int, step: int) -> Orders:
        """The orders of both sides in a step of an epoch: a function of these numbers, the same on all ranks."""
        plan = _PLANS[self.schedule]
        drawn = np.random.default_rng((seed, epoch, step, _DRAWN)).integers(len(plan.added))
        first, second = zip(plan.epochs[epoch % len(plan.epochs)], plan.added[drawn], strict=True)
        return sum(first), sum(second)

    def __call__(self, clips: Tensor, orders: Orders) -> Tensor:
        """The views of clips (b, v, 3, T + extra, H, W): (b, v, 3, T, H, W)."""
        if self.extra == 0:
            return clips
        frames = clips.shape[-3] - self.extra
        sides = [derivative(clip, orders[i % 2], frames=frames) for i, clip in enumerate(clips.unbind(1))]
        return torch.stack(sides, 1)
