"""Views: what an encoder is shown of clips, frames or their change in time (ViDiDi, Algorithm 1), and asked about it.

Every clip belongs to one of two sides, V and V'; all clips of a side in a batch show the same order of derivative.
With more than two clips of a video the sides take turns: clips 1, 3, … are V and clips 2, 4, … are V'. An inner level
that looks at the first clip only sees V.

Networks are evaluated on frames as they are, by batch-norm statistics that were averaged over all views. On the demo's
SimCLR recipe (one seed) statistics taken anew from frames alone moved no linear probe of `whole` by more than 0.012.

Routing is this library's own: where embeddings are split, a half is asked only on views that can show it. What stays is
gone from a derivative, so that its static half is not asked for; and since the change of a coloured light has that
light's hue, each derivative can be turned to a hue of its own, by which no video is told.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion.data.draws import colour_matrices
from stillmotion.errors import StillmotionError
from stillmotion.functional.derivative import derivative
from stillmotion.nn.norms import by_side

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
    "turns",
]
Route = Literal["all", "shown", "apart"]
Colour = Literal["kept", "turned", "grey"]
Norm = Literal["joint", "apart"]

_HIGHEST = 2
# These set the draws of orders and of colours apart from those of clips, which are made of (seed, epoch, index).
_DRAWN = 1
_COLOURED = 2


class _Plan(NamedTuple):
    """epochs: orders of both sides, epoch by epoch, over and over. added: a batch adds one of these.

    turns: batches take them in turn, from one that is drawn for the epoch; else each batch draws its own.
    """

    epochs: tuple[Orders, ...]
    added: tuple[Orders, ...] = ((0, 0),)
    turns: bool = False


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
    "turns": _Plan(((0, 0),), ((0, 0), (1, 1)), turns=True),
}


@dataclass(frozen=True)
class ViewsConfig:
    """Which derivatives in time the encoder is shown, and which half of its embedding is asked for on which.

    Attributes:
        schedule: base shows frames as they are; turns shows frames and first derivatives by turns, batch by batch; full
            is ViDiDi, and the others are the ablations of its Table 6.
        route: all asks for both halves on every view; shown asks for the static one on frames only; apart also for the
            dynamic one on derivatives only.
        colour: of derivatives; turned gives each a random hue, and grey takes it away.
        norm: whether batch norms see both sides of a pair jointly, or each side apart, by statistics of its own.
    """

    schedule: Schedule = "base"
    route: Route = "all"
    colour: Colour = "kept"
    norm: Norm = "joint"

    def __post_init__(self) -> None:
        if self.schedule == "base" and (self.route, self.colour) != ("all", "kept"):
            raise StillmotionError(
                f"views.route is {self.route} and views.colour {self.colour}, but no view is a derivative: leave them "
                "out, or choose a schedule that has some (--method.views.schedule turns)"
            )

    @property
    def extra(self) -> int:
        """How many frames are read beyond those of a clip; as many for every order, so that all views are as long."""
        return 0 if self.schedule == "base" else _HIGHEST

    def orders(self, *, seed: int, epoch: int, step: int) -> Orders:
        """The orders of both sides in a step of an epoch: a function of these numbers, the same on all ranks."""
        plan = _PLANS[self.schedule]
        # The first turn is drawn: if it were fixed, a log of every tenth step might see the same turn always.
        drawn = np.random.default_rng((seed, epoch, 0 if plan.turns else step, _DRAWN)).integers(len(plan.added))
        added = plan.added[(drawn + step * plan.turns) % len(plan.added)]
        first, second = zip(plan.epochs[epoch % len(plan.epochs)], added, strict=True)
        return sum(first), sum(second)

    def asked(self, orders: Orders) -> tuple[str, ...]:
        """The halves that are asked for where the sides show these orders."""
        frames = not any(orders)
        static = frames or self.route == "all"
        dynamic = not frames or self.route != "apart"
        return ("static",) * static + ("dynamic",) * dynamic

    def passed(self, run: Callable[[Tensor], Tensor], rows: Tensor, clips: int) -> Tensor:
        """What `run` makes of rows (b·v, …), by as many passes as there are sides where they are normed apart.

        clips: v, of each video.
        """
        if self.norm == "joint":
            return run(rows)
        return by_side(run, rows.unflatten(0, (-1, clips))).flatten(0, 1)

    def colours(self, *, seed: int, epoch: int, index: Iterable[int], clips: int) -> Tensor | None:
        """What the colours of each clip's derivative are multiplied by, (b, v, 3, 3); None leaves them.

        index: the batch's videos. With the seed and the epoch, a video's number fixes what is drawn for its clips.
        """
        if self.colour == "kept":
            return None
        drawn = [np.random.default_rng((seed, epoch, int(i), _COLOURED)).uniform(-np.pi, np.pi, clips) for i in index]
        angle = np.concatenate(drawn)
        even = np.ones_like(angle)
        matrices = colour_matrices(even, even * (self.colour == "turned"), angle)
        return torch.from_numpy(matrices.astype(np.float32)).unflatten(0, (-1, clips))

    def __call__(self, clips: Tensor, orders: Orders, colours: Tensor | None = None) -> Tensor:
        """The views of clips (b, v, 3, T + extra, H, W): (b, v, 3, T, H, W). colours: of `colours`."""
        if self.extra == 0:
            return clips
        frames = clips.shape[-3] - self.extra
        sides = [derivative(clip, orders[i % 2], frames=frames) for i, clip in enumerate(clips.unbind(1))]
        if colours is not None:
            for i in range(len(sides)):
                if orders[i % 2] > 0:
                    sides[i] = torch.einsum("bij,bjthw->bithw", colours[:, i].to(clips), sides[i])
        return torch.stack(sides, 1)
