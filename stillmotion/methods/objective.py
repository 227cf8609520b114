"""What every objective is: a loss on the embeddings of one component, and the state it keeps between steps.

An objective is added by a subclass of each class below and a row of `methods/objectives.py`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor, nn


class Objective(nn.Module):
    """A loss on embeddings z (b, v, m) of one component: the whole, the static half or the dynamic half.

    uses_target: whether it needs `keys`, the momentum encoder's embeddings of the same clips.
    apart: whether its batch norms, if it has some, see each side of a pair by itself.
    momentum: of the momentum encoder at the start; it ends at 1 by a cosine, and 1 leaves the encoder as it is.
    `forward` changes nothing; what moves between steps moves in `commit`, once per step.
    """

    uses_target: ClassVar[bool] = False
    apart: bool = False
    momentum: float = 1.0

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def commit(self, keys: Tensor) -> None:
        """Take note of this step's keys."""

    def chance(self, videos: int, views: int) -> float:
        """The loss of a batch in which nothing is told apart; nan where that depends on more than its size."""
        return math.nan

    def frozen(self, epoch: int) -> tuple[str, ...]:
        """Names of its parameters that do not learn in this epoch."""
        return ()


@dataclass(frozen=True)
class ObjectiveConfig:
    """An objective and its constants: the fields of a subclass.

    name: what options and config.json call it. title: what a report calls it.
    shuffles: key clips are embedded in random shares of the ranks, and batch norms stay each rank's own.
    directions: the loss is of embeddings' directions, whatever their lengths.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    shuffles: ClassVar[bool] = False
    directions: ClassVar[bool] = True

    def build(self, width: int) -> Objective:
        """The objective for embeddings of this width."""
        raise NotImplementedError

    def small(self) -> Self:
        """The same with its state shrunk, and kept for less long, for a debug twin."""
        return self
