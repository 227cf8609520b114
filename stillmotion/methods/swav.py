"""V-SwAV: predict another clip's assignment to prototypes (Caron et al. 2020).

Under a split each component has its own prototypes.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.functional.contrast import swav_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig


@dataclass(frozen=True)
class SwAVConfig(ObjectiveConfig):
    """V-SwAV.

    Attributes:
        temperature: of the predictions.
        prototypes: how many.
        epsilon: smoothness of the Sinkhorn assignment.
        iterations: of Sinkhorn.
        frozen_epochs: how long the prototypes rest at first.
    """

    name: ClassVar[str] = "swav"
    title: ClassVar[str] = "SwAV"
    temperature: float = 0.1
    prototypes: int = 1000
    epsilon: float = 0.05
    iterations: int = 3
    frozen_epochs: int = 1

    def build(self, width: int) -> "SwAV":
        return SwAV(width, self)

    def small(self) -> Self:
        return replace(self, prototypes=32)


class SwAV(Objective):
    def __init__(self, width: int, config: SwAVConfig) -> None:
        super().__init__()
        self.config = config
        self.prototypes = nn.Linear(width, config.prototypes, bias=False)

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        scores = F.normalize(z, dim=-1) @ F.normalize(self.prototypes.weight, dim=1).mT
        c = self.config
        return swav_loss(scores, temperature=c.temperature, epsilon=c.epsilon, iterations=c.iterations)

    def chance(self, videos: int, views: int) -> float:
        """Each prototype as likely as any other."""
        return math.log(self.config.prototypes)

    def frozen(self, epoch: int) -> tuple[str, ...]:
        return ("prototypes.weight",) if epoch < self.config.frozen_epochs else ()
