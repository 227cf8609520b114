"""VICReg: equal views, spread-out and uncorrelated channels (Bardes et al. 2022; ViDiDi, Eq. 3–6)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stillmotion.functional.contrast import vicreg_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig


@dataclass(frozen=True)
class VICRegConfig(ObjectiveConfig):
    """VICReg. Under a split, frames must keep their scale (--method.split.no-normalize).

    Attributes:
        invariance: weight of the distance between views.
        variance: weight of the spread of every channel.
        covariance: weight of the correlation between channels.
    """

    name: ClassVar[str] = "vicreg"
    title: ClassVar[str] = "VICReg"
    directions: ClassVar[bool] = False
    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0

    def build(self, width: int) -> "VICReg":
        return VICReg(self)


class VICReg(Objective):
    def __init__(self, config: VICRegConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        c = self.config
        return vicreg_loss(z, invariance=c.invariance, variance=c.variance, covariance=c.covariance)

    def chance(self, videos: int, views: int) -> float:
        """All clips alike, at no distance from each other: what is left is the variance term."""
        c = self.config
        return vicreg_loss(
            torch.ones(2, 2, 2), variance=c.variance, invariance=c.invariance, covariance=c.covariance
        ).item()
