"""Base classes `Objective` and `ObjectiveConfig`, and the table of objectives.

A new objective is a subclass of both classes in a file of its own, and a row in `OBJECTIVES`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import Tensor, nn

from stillmotion.utils.registry import Registry


class Objective(nn.Module):
    """Base class of objectives: a loss on embeddings z (b, v, m) of one component.

    A component is the whole embedding, its static part or its dynamic part. `forward` must not change any state,
    because a solver may call it several times in a step; state changes in `after_step`, once per step.

    Attributes:
        uses_momentum_encoder: Whether `forward` needs `keys`, the momentum encoder's embeddings of the same clips.
        separate_batch_norm: Whether batch norms of the objective see each side of a pair separately.
        momentum: Momentum of the momentum encoder at the start; it rises to 1 along a cosine. 1 keeps it as it is.
    """

    uses_momentum_encoder: ClassVar[bool] = False
    separate_batch_norm: bool = False
    momentum: float = 1.0

    def forward(self, z: Tensor, keys: Tensor | None = None) -> Tensor:
        """Compute the loss.

        Args:
            z: Embeddings (b, v, m) of b videos with v clips each.
            keys: Embeddings (b, v, m) by the momentum encoder, if the objective uses one.
        """
        raise NotImplementedError

    def after_step(self, keys: Tensor) -> None:
        """Update internal state with this step's keys (b, v, m)."""

    def chance_loss(self, num_videos: int, num_views: int) -> float:
        """Return the loss of a collapsed or uninformative batch; nan if it is not defined by the batch size.

        Args:
            num_videos: Videos in the batch.
            num_views: Clips of each video.
        """
        return math.nan

    def frozen_parameter_names(self, epoch: int) -> tuple[str, ...]:
        """Return names of parameters that are frozen in this epoch."""
        return ()


@dataclass(frozen=True)
class ObjectiveConfig:
    """Base class of objective configs; the fields of a subclass are its options.

    Attributes:
        name: Name in options and in config.json.
        title: Name in reports.
        shuffles_keys: Whether key clips are shuffled over ranks, with batch norms that are not synchronized.
        is_scale_invariant: Whether the loss depends on the directions of embeddings only.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    shuffles_keys: ClassVar[bool] = False
    is_scale_invariant: ClassVar[bool] = True

    @classmethod
    def choices(cls) -> "Registry[type[ObjectiveConfig]]":
        """Return the table of objectives, for `utils.typed_config`."""
        return OBJECTIVES

    def build(self, embedding_dim: int) -> Objective:
        """Build the objective for an embedding dimension."""
        raise NotImplementedError

    def debug_size(self) -> Self:
        """Return a config with small state, for `--debug`."""
        return self


OBJECTIVES: Registry[type[ObjectiveConfig]] = Registry(
    "objective",
    "objectives",
    {
        "simclr": "stillmotion.methods.simclr:SimCLRConfig",
        "moco": "stillmotion.methods.moco:MoCoConfig",
        "byol": "stillmotion.methods.byol:BYOLConfig",
        "swav": "stillmotion.methods.swav:SwAVConfig",
        "vicreg": "stillmotion.methods.vicreg:VICRegConfig",
    },
)
"""Objectives by name."""
