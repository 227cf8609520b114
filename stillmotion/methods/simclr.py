"""V-SimCLR: contrast within the batch (Chen et al. 2020; Feichtenhofer et al. 2021; BOD-VCL, Eq. 1–2).

`negatives="same-side"` is the loss of ViDiDi-SimCLR (ViDiDi, Eq. 1).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from stillmotion.functional.contrastive import cross_view_loss, simclr_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig


@dataclass(frozen=True)
class SimCLRConfig(ObjectiveConfig):
    """SimCLR on video clips (V-SimCLR).

    Attributes:
        temperature: InfoNCE temperature (α in Eq. 1).
        negatives: Negatives: all other videos' clips (all), or only clips of the positive's side (same-side, ViDiDi).
    """

    name: ClassVar[str] = "simclr"
    title: ClassVar[str] = "SimCLR's InfoNCE"
    temperature: float = 0.1
    negatives: Literal["all", "same-side"] = "all"

    def build(self, embedding_dim: int) -> "SimCLR":
        return SimCLR(self)


class SimCLR(Objective):
    """InfoNCE among the clips of a batch.

    Args:
        config: Configuration of the objective.
    """

    def __init__(self, config: SimCLRConfig) -> None:
        super().__init__()
        self.config = config

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        loss = simclr_loss if self.config.negatives == "all" else cross_view_loss
        return loss(z, temperature=self.config.temperature)

    def chance_loss(self, num_videos: int, num_views: int) -> float:
        """All clips equal: the log of the number of candidates per positive."""
        if self.config.negatives == "same-side":
            return math.log(num_videos)
        return math.log((num_videos * num_views - 1) / (num_views - 1))
