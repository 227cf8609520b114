"""What every objective is: a loss on the embeddings of one component, and the state it keeps between steps.

An objective is added by a subclass of each class below and a row of `methods/objectives.py`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor, nn


class Objective(nn.Module):
    """A loss on embeddings z (b, v, m) of one component: the whole, the static half or the dynamic half.

    uses_momentum_encoder: whether it needs `keys`, the momentum encoder's embeddings of the same clips.
    separate_batch_norm: whether its batch norms, if it has some, see each side of a pair by itself.
    momentum: of the momentum encoder at the start; it ends at 1 by a cosine, and 1 leaves the encoder as it is.
    `forward` changes nothing; what moves between steps moves in `after_step`, once per step.
    """

    uses_momentum_encoder: ClassVar[bool] = False
    separate_batch_norm: bool = False
    momentum: float = 1.0

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def after_step(self, keys: Tensor) -> None:
        """Take note of this step's keys."""

    def chance_loss(self, num_videos: int, num_views: int) -> float:
        """The loss of a batch in which nothing is told apart; nan where that depends on more than its size."""
        return math.nan

    def frozen_parameter_names(self, epoch: int) -> tuple[str, ...]:
        """Names of its parameters that do not learn in this epoch."""
        return ()


@dataclass(frozen=True)
class ObjectiveConfig:
    """An objective and its constants: the fields of a subclass.

    name: what options and config.json call it. title: what a report calls it.
    shuffles_keys: key clips are embedded in random shares of the ranks, and batch norms stay each rank's own.
    is_scale_invariant: the loss is of embeddings' directions, whatever their lengths.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    shuffles_keys: ClassVar[bool] = False
    is_scale_invariant: ClassVar[bool] = True

    def build(self, embedding_dim: int) -> Objective:
        """The objective for embeddings of this width."""
        raise NotImplementedError

    def debug_size(self) -> Self:
        """The same with its state shrunk, and kept for less long, for a debug twin."""
        return self
