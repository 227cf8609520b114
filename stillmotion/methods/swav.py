"""V-SwAV: predict another clip's assignment to prototypes (Caron et al. 2020).

With a static/dynamic decomposition, each component has its own prototypes.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.functional.contrastive import swav_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig


@dataclass(frozen=True)
class SwAVConfig(ObjectiveConfig):
    """SwAV on video clips (V-SwAV).

    Attributes:
        temperature: Softmax temperature of the predictions.
        num_prototypes: Number of prototypes.
        sinkhorn_epsilon: Entropy regularization of the Sinkhorn assignment.
        sinkhorn_iterations: Iterations of the Sinkhorn algorithm.
        freeze_prototypes_epochs: Epochs at the start in which the prototypes are frozen.
    """

    name: ClassVar[str] = "swav"
    title: ClassVar[str] = "SwAV"
    temperature: float = 0.1
    num_prototypes: int = 1000
    sinkhorn_epsilon: float = 0.05
    sinkhorn_iterations: int = 3
    freeze_prototypes_epochs: int = 1

    def build(self, embedding_dim: int) -> "SwAV":
        return SwAV(embedding_dim, self)

    def debug_size(self) -> Self:
        return replace(self, num_prototypes=32)


class SwAV(Objective):
    """Prediction of another clip's assignment to prototypes.

    Args:
        embedding_dim: Dimension of the embeddings (m).
        config: Configuration of the objective.
    """

    def __init__(self, embedding_dim: int, config: SwAVConfig) -> None:
        super().__init__()
        self.config = config
        self.prototypes = nn.Linear(embedding_dim, config.num_prototypes, bias=False)

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        scores = F.normalize(z, dim=-1) @ F.normalize(self.prototypes.weight, dim=1).mT
        c = self.config
        return swav_loss(
            scores, temperature=c.temperature, epsilon=c.sinkhorn_epsilon, iterations=c.sinkhorn_iterations
        )

    def chance_loss(self, num_videos: int, num_views: int) -> float:
        """All prototypes equally likely."""
        return math.log(self.config.num_prototypes)

    def frozen_parameter_names(self, epoch: int) -> tuple[str, ...]:
        return ("prototypes.weight",) if epoch < self.config.freeze_prototypes_epochs else ()
