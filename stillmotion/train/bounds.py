"""Whether a run still learns, or has left all bounds, by its own history."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

GRADIENT = 1e4  # times its usual norm, beyond which a gradient is out of bounds
WEIGHTS = 1e3  # times their norm at the start, beyond which weights are
_SETTLED = 10  # steps after which a gradient has a usual norm
_SMOOTH = 0.02  # share of the last step in the usual norm
_LOW = 1e-2  # of its norm at first, below which a gradient's usual norm is not taken: what is learned, is small
_WILD = 5  # gradients in a row that may be out of bounds
_IDLE = 3  # steps at the beginning of a run that may teach nothing
_ALIKE = 1e-3  # of normalised pixels: far below one level of 255


class Bounds:
    """The usual norm of a run's gradients, and the norm of its weights at the start.

    wild: gradients in a row, up to the last one, that are out of bounds.
    """

    def __init__(self) -> None:
        self.wild = 0
        self._steps, self._usual, self._least = 0, 0.0, -math.inf  # norms by their logarithms
        self._start = math.nan

    def begin(self, weights: Iterable[Tensor]) -> None:
        """Take these weights as the start, where none is known."""
        if math.isnan(self._start):
            self._start = max(float(total_norm(weights)), 1.0)

    def note(self, norm: float) -> None:
        """Take a step's gradient norm, which is finite, into the history, if it is within bounds."""
        height = math.log(max(norm, 1e-30))
        usual = max(self._usual, self._least)
        self.wild = self.wild + 1 if self._steps >= _SETTLED and height - usual > math.log(GRADIENT) else 0
        if self.wild:
            return
        self._steps += 1
        self._usual += (height - self._usual) * max(_SMOOTH, 1 / self._steps)
        if self._steps == _SETTLED:
            self._least = self._usual + math.log(_LOW)

    def grown(self, size: float) -> str | None:
        """How much the weights, now of this norm, have grown, in words, if it is too much."""
        if size <= WEIGHTS * self._start:
            return None
        return f"the weights have grown from a norm of {self._start:.3g} to {size:.3g}"

    def strayed(self, norm: float) -> str | None:
        """How far the gradient, now of this norm, is out of bounds, in words, if it was so too often."""
        return self.wildness(norm) if self.wild >= _WILD else None

    def wildness(self, norm: float) -> str:
        """How far the gradient, now of this norm, is out of bounds, in words."""
        usual = math.exp(max(self._usual, self._least))
        return f"the gradient has a norm of {norm:.3g}, where {usual:.3g} is usual"

    def state(self) -> dict[str, Any]:
        return {"steps": self._steps, "usual": self._usual, "least": self._least, "start": self._start}

    def resume(self, state: Mapping[str, Any]) -> None:
        self._steps, self._usual = state["steps"], state["usual"]
        self._least, self._start = state["least"], state["start"]


class Teaching:
    """Whether the first steps of a run teach anything: its clips differ, its losses and gradients are not all 0.

    total: steps of the run.
    """

    def __init__(self, total: int) -> None:
        self._first = min(_IDLE, total)
        self._looks: list[str | None] = []
        self._seen = self._idle = 0

    def watches(self, step: int) -> bool:
        """Whether this step, from 1 on, is one of the first."""
        return step <= self._first

    def look(self, clips: Tensor, step: int) -> None:
        """See whether the clips (B, …, T, H, W) of a step, or of a part of it, show anything. step: from 1 on."""
        if self.watches(step):
            self._looks.append(_sameness(clips))

    @property
    def blank(self) -> bool:
        """Whether nothing that was looked at in this step shows anything."""
        return bool(self._looks) and all(self._looks)

    def wanting(self, step: int, losses: Mapping[str, float], norm: float, *, blank: bool) -> str | None:
        """Why nothing is learned, in words, where no step up to now taught anything. blank: on all ranks."""
        if not self.watches(step):
            return None
        reason = self._looks[0] if blank and self._looks else None
        if reason is None and losses and not any(losses.values()):
            reason = "every loss is exactly 0: there is nothing to tell apart; raise --optim.batch, or look at --data"
        if reason is None and norm == 0:
            reason = "the gradient is exactly 0, and nothing is learned; look whether the videos differ at all (--data)"
        self._looks.clear()
        self._seen += 1
        self._idle += reason is not None
        return reason if step == self._first and self._idle == self._seen else None


def total_norm(tensors: Iterable[Tensor]) -> Tensor:
    return nn.utils.get_total_norm([t.detach() for t in tensors])


def _sameness(clips: Tensor) -> str | None:
    """In what way clips show nothing, if they do."""
    pixels = clips.float().flatten(-3)
    if float((pixels.amax(-1) - pixels.amin(-1)).max()) < _ALIKE:
        return "every clip is of one colour throughout; look whether the videos show anything (--data)"
    videos = clips.flatten(1)
    if len(videos) > 1 and float((videos[1:] - videos[:1]).abs().max()) < _ALIKE:
        return "all clips of a batch are the same; look whether the videos differ (--data)"
    return None


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of the tensors that hold a NaN or an infinity."""
    return [name for name, t in tensors.items() if t.is_floating_point() and not torch.isfinite(t).all()]
