"""BYOL: predict a momentum encoder's embeddings, without negatives (Grill et al. 2020; BOD-VCL, Eq. 4).

With a static/dynamic decomposition, each component has its own predictor.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor

from stillmotion.functional.contrastive import byol_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig
from stillmotion.models.batch_norm import forward_per_side
from stillmotion.models.heads import MLPHead


@dataclass(frozen=True)
class BYOLConfig(ObjectiveConfig):
    """BYOL on video clips (V-BYOL).

    Attributes:
        momentum: Initial momentum of the target encoder; rises to 1 with a cosine schedule.
        predictor_hidden_dim: Hidden dimension of the two-layer predictor.
    """

    name: ClassVar[str] = "byol"
    title: ClassVar[str] = "BYOL"
    momentum: float = 0.996
    predictor_hidden_dim: int = 4096

    def build(self, embedding_dim: int) -> "BYOL":
        return BYOL(embedding_dim, self)

    def debug_size(self) -> Self:
        return replace(self, predictor_hidden_dim=64, momentum=0.9)  # follows within a hundred steps


class BYOL(Objective):
    """Prediction of the momentum encoder's embeddings, without negatives.

    Args:
        embedding_dim: Dimension of the embeddings (m).
        config: Configuration of the objective.
    """

    uses_momentum_encoder = True

    def __init__(self, embedding_dim: int, config: BYOLConfig) -> None:
        super().__init__()
        self.momentum = config.momentum
        self.predictor = MLPHead(
            embedding_dim, embedding_dim, hidden_dim=config.predictor_hidden_dim, num_layers=2, batch_norm=True
        )

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        assert keys is not None
        return byol_loss(forward_per_side(self.predictor, z) if self.separate_batch_norm else self.predictor(z), keys)
