"""What every objective is: a loss on the embeddings of one component, and the state it keeps between steps."""

from typing import ClassVar

from torch import Tensor, nn


class Objective(nn.Module):
    """A loss on embeddings z (b, v, m) of one component: the whole, the static half or the dynamic half.

    uses_target: whether it needs `keys`, the momentum encoder's embeddings of the same clips.
    `forward` changes nothing; what moves between steps moves in `commit`, once per step.
    """

    uses_target: ClassVar[bool] = False

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def commit(self, keys: Tensor) -> None:
        """Take note of this step's keys."""

    def frozen(self, epoch: int) -> tuple[str, ...]:
        """Names of its parameters that do not learn in this epoch."""
        return ()
