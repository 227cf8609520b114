"""Embedding network: `ModelConfig` and the backbone with its projection head."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from tyro.conf import arg

from stillmotion.models.backbones import TemporalPadding, create_backbone, list_backbones
from stillmotion.models.heads import MLPHead
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class ModelConfig:
    """Backbone and projection head.

    Attributes:
        backbone: Backbone network, one of: {backbone names}.
        stage_channels: Channels per stage of small_cnn3d and tokens_cnn. Empty uses the network's default.
        grid_size: Only for tokens_cnn: rows and columns of the spatial grid that is pooled separately.
        image_model: Frozen image transformer of tokens_cnn.
        match_radius: Only for tokens_cnn: use the matches of each token with those within this radius in the next frame
            in place of the token, so that the network sees motion without appearance. 0 uses the tokens.
        per_frame_features: Remove temporal strides, so that the backbone returns one feature per frame. --no-… restores
            the original strides.
        temporal_padding: Padding before the first and after the last frame: replicate, or zeros as in the papers'
            networks.
        init_weights: Checkpoint file to initialize the backbone from.
        embedding_dim: Dimension of the embedding (M in the papers).
        projector_layers: Number of layers of the projection head.
        projector_hidden_dim: Hidden dimension of the projection head.
        projector_batch_norm: Use batch norm in the projection head.
    """

    backbone: Annotated[str, arg(help=f"Backbone network, one of: {', '.join(list_backbones())}.")] = "slow_r50"
    stage_channels: tuple[int, ...] = ()
    grid_size: int = 1
    image_model: ImageModelConfig = field(default_factory=ImageModelConfig)
    match_radius: int = 0
    per_frame_features: bool = True
    temporal_padding: TemporalPadding = "replicate"
    init_weights: str | None = None
    embedding_dim: int = 128
    projector_layers: int = 3
    projector_hidden_dim: int = 2048
    projector_batch_norm: bool = False

    def __post_init__(self) -> None:
        at_least_one = (1, None)
        check_ranges(
            self,
            "method.model",
            embedding_dim=at_least_one,
            projector_layers=at_least_one,
            projector_hidden_dim=at_least_one,
            grid_size=at_least_one,
            match_radius=(0, None),
        )

    @property
    def uses_tokens(self) -> bool:
        """Whether the backbone takes the tokens of an image transformer."""
        return self.backbone == "tokens_cnn"


class EmbeddingNetwork(nn.Module):
    """Backbone and projection head; the momentum encoder is a copy of it.

    Args:
        config: Configuration of the network.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        options: dict[str, Any] = {"channels": config.stage_channels} if config.stage_channels else {}
        if config.uses_tokens:
            options |= {
                "grid_size": config.grid_size,
                "image_model": config.image_model,
                "match_radius": config.match_radius,
            }
        self.backbone = create_backbone(
            config.backbone,
            per_frame_features=config.per_frame_features,
            temporal_padding=config.temporal_padding,
            **options,
        )
        self.projector = MLPHead(
            self.backbone.out_features,
            config.embedding_dim,
            hidden_dim=config.projector_hidden_dim,
            num_layers=config.projector_layers,
            batch_norm=config.projector_batch_norm,
        )

    def project(self, features: Tensor) -> Tensor:
        """Project features (…, D) to embeddings (…, M), in float32 at least: in float16, tiny cosines are NaN."""
        z = self.projector(features)
        return z.to(torch.promote_types(z.dtype, torch.float32))
