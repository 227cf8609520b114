"""VICReg: equal views, spread-out and uncorrelated channels (Bardes et al. 2022; ViDiDi, Eq. 3–6)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stillmotion.functional.contrastive import vicreg_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig


@dataclass(frozen=True)
class VICRegConfig(ObjectiveConfig):
    """VICReg on video clips. With a static/dynamic decomposition, set --method.static-dynamic.no-normalize.

    Attributes:
        invariance_weight: Weight of the invariance term (distance between views).
        variance_weight: Weight of the variance term (std of every channel).
        covariance_weight: Weight of the covariance term (correlation between channels).
    """

    name: ClassVar[str] = "vicreg"
    title: ClassVar[str] = "VICReg"
    is_scale_invariant: ClassVar[bool] = False
    invariance_weight: float = 25.0
    variance_weight: float = 25.0
    covariance_weight: float = 1.0

    def build(self, embedding_dim: int) -> "VICReg":
        return VICReg(self)


class VICReg(Objective):
    """Variance, invariance and covariance regularization.

    Args:
        config: Configuration of the objective.
    """

    def __init__(self, config: VICRegConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        c = self.config
        return vicreg_loss(
            z, invariance=c.invariance_weight, variance=c.variance_weight, covariance=c.covariance_weight
        )

    def chance_loss(self, num_videos: int, num_views: int) -> float:
        """All clips equal: only the variance term remains."""
        c = self.config
        return vicreg_loss(
            torch.ones(2, 2, 2),
            variance=c.variance_weight,
            invariance=c.invariance_weight,
            covariance=c.covariance_weight,
        ).item()
