"""V-MoCo: a momentum encoder gives the positives, a queue the negatives (He et al. 2020; BOD-VCL, Eq. 3).

Each component has its own objective and so its own queue.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.distributed.collectives import all_gather_no_grad
from stillmotion.functional.contrastive import moco_loss
from stillmotion.methods.objective import Objective, ObjectiveConfig


@dataclass(frozen=True)
class MoCoConfig(ObjectiveConfig):
    """MoCo on video clips (V-MoCo).

    Attributes:
        temperature: InfoNCE temperature (α in Eq. 1).
        queue_size: Number of keys in the queue.
        momentum: Initial momentum of the momentum encoder; rises to 1 with a cosine schedule.
    """

    name: ClassVar[str] = "moco"
    title: ClassVar[str] = "MoCo"
    shuffles_keys: ClassVar[bool] = True
    temperature: float = 0.1
    queue_size: int = 65536
    momentum: float = 0.994

    def build(self, embedding_dim: int) -> "MoCo":
        return MoCo(embedding_dim, self)

    def debug_size(self) -> Self:
        return replace(self, queue_size=128, momentum=0.9)  # follows within a hundred steps


class MoCo(Objective):
    """InfoNCE with keys of a momentum encoder and a queue of negatives.

    Args:
        embedding_dim: Dimension of the embeddings (m).
        config: Configuration of the objective.
    """

    uses_momentum_encoder = True
    queue: Tensor
    queue_position: Tensor

    def __init__(self, embedding_dim: int, config: MoCoConfig) -> None:
        super().__init__()
        self.config = config
        self.momentum = config.momentum
        self.register_buffer("queue", F.normalize(torch.randn(config.queue_size, embedding_dim), dim=1))
        self.register_buffer("queue_position", torch.zeros((), dtype=torch.long))

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        assert keys is not None
        # `after_step` may write into the queue before a backward pass: the loss keeps a normalized copy.
        return moco_loss(z, keys, self.queue, temperature=self.config.temperature)

    def chance_loss(self, num_videos: int, num_views: int) -> float:
        """All clips and keys equal: the log of the number of candidates per positive."""
        return math.log((num_views - 1 + len(self.queue)) / (num_views - 1))

    @torch.no_grad()
    def after_step(self, keys: Tensor) -> None:
        """Replace the oldest keys by those of all ranks."""
        new = F.normalize(all_gather_no_grad(keys).flatten(0, 1).to(self.queue.dtype), dim=1)[-len(self.queue) :]
        positions = (self.queue_position + torch.arange(len(new), device=new.device)) % len(self.queue)
        self.queue[positions] = new
        self.queue_position.copy_((self.queue_position + len(new)) % len(self.queue))
