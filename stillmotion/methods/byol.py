"""V-BYOL: predict a momentum encoder's embeddings; no negatives (Grill et al. 2020; BOD-VCL, Eq. 4).

Under a split the predictor stands behind it, one for each component.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from stillmotion.functional.contrast import byol_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig
from stillmotion.nn.heads import MLP
from stillmotion.nn.norms import by_side


@dataclass(frozen=True)
class BYOLConfig(ObjectiveConfig):
    """V-BYOL.

    Attributes:
        momentum: of the encoder at the start; it ends at 1 by a cosine.
        hidden: width of the two-layer predictor.
    """

    name: ClassVar[str] = "byol"
    title: ClassVar[str] = "BYOL"
    momentum: float = 0.996
    hidden: int = 4096

    def build(self, width: int) -> "BYOL":
        return BYOL(width, self)

    def small(self) -> Self:
        return replace(self, hidden=64, momentum=0.9)  # whose keys follow within a hundred steps


class BYOL(Objective):
    uses_target = True

    def __init__(self, width: int, config: BYOLConfig) -> None:
        super().__init__()
        self.momentum = config.momentum
        self.predictor = MLP(width, width, hidden=config.hidden, layers=2, norm=True)

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        assert keys is not None
        return byol_loss(by_side(self.predictor, z) if self.apart else self.predictor(z), keys)
