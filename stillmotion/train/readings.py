"""What a run's steps left on the device, read and looked at in their order.

They are read where they are written down or weights are saved. So the device is never waited for in between, and a step
that went wrong is named all the same.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from stillmotion import distributed
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.train.bounds import Bounds, Teaching

_PATIENCE = 20  # steps in a row that fp16 may skip while its scale settles


class _Row(NamedTuple):
    """What a step left: values by name, then the gradient's norm, the weights' and a share of blanks."""

    step: int
    names: tuple[str, ...]
    values: Tensor


class Readings:
    """The numbers of steps that nobody has looked at yet.

    bounds, teaching: what they are held against. skips: whether a step may be left out while a scale settles.
    diverged: makes the error of what is wrong, in words, and of the step it is wrong at.
    """

    def __init__(
        self, bounds: Bounds, teaching: Teaching, *, skips: bool, diverged: Callable[[str, int], NonFiniteError]
    ) -> None:
        self._bounds, self._teaching, self._skips, self._diverged = bounds, teaching, skips, diverged
        self._skipped = 0
        self._rows: list[_Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, step: int, values: Mapping[str, Tensor], norm: Tensor, size: Tensor) -> None:
        """Keep a step's values by name, its gradient's norm and its weights' before it; nothing is waited for."""
        blank = torch.full_like(norm, float(self._teaching.blank))
        self._rows.append(_Row(step, tuple(values), torch.stack([*values.values(), norm, size, blank]).float()))

    def read(self) -> dict[str, float]:
        """What the last step left, means over ranks; raises where it, or one before it, left its bounds."""
        rows, self._rows = self._rows, []
        means = torch.cat([row.values for row in rows])
        distributed.average_([means])
        left = iter(means.tolist())
        for row in rows:
            *found, size, blank = (next(left) for _ in row.values)
            numbers = dict(zip([*row.names, "gradient_norm"], found, strict=True))
            bad = [name for name, value in numbers.items() if not math.isfinite(value)]
            self._skipped = self._skipped + 1 if bad else 0
            if bad and not (self._skips and self._skipped <= _PATIENCE):
                raise self._diverged(f"{', '.join(bad)} is not finite", row.step)
            if not bad:
                self._look(row.step, numbers, size, blank=blank == 1)
        return numbers

    def _look(self, step: int, numbers: Mapping[str, float], size: float, *, blank: bool) -> None:
        """Raises where the run learns nothing, or has left its bounds. size: of its weights before the step."""
        norm = numbers["gradient_norm"]
        losses = {name: value for name, value in numbers.items() if name.startswith("loss/")}
        reason = self._teaching.wanting(step, losses, norm, blank=blank)
        if reason:
            raise StillmotionError(f"step {step}: {reason}")
        self._bounds.note(norm)
        if grown := self._bounds.grown(size):
            raise self._diverged(grown, step - 1)
        if strayed := self._bounds.strayed(norm):
            raise self._diverged(strayed, step)
