"""A backbone with a linear classifier on its pooled features.

Shapes: B clips, T frames, T' time steps, D channels, C classes."""

from typing import Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.freeze import eval_frozen_modules, layer_depths

TemporalPool = Literal["mean", "concat"]
_INIT_STD = 0.01


class VideoClassifier(nn.Module):
    """Clips (B, 3, T, H, W) to scores (B, C): features pooled over time and space, then a linear map.

    num_classes: C. The head's weights start small, so that the first scores are almost equal.
    pool: "mean" over time, which no order of frames changes; "concat" keeps time steps side by side.
    num_steps: T', of "concat"; see `time_steps`.
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, *, pool: TemporalPool = "mean", num_steps: int = 1
    ) -> None:
        super().__init__()
        if pool == "concat" and num_steps < 2:
            raise StillmotionError(
                "head.pool is concat, but the encoder makes one time step of a clip; show it more frames, take one "
                "that keeps time, or choose --head.pool mean"
            )
        self.backbone, self.pool, self.num_steps = backbone, pool, num_steps if pool == "concat" else 1
        self.head = nn.Linear(self.num_steps * backbone.out_features, num_classes)
        nn.init.normal_(self.head.weight, std=_INIT_STD)
        nn.init.zeros_(self.head.bias)
        self._layer_depths = layer_depths(backbone)

    def forward(self, clips: Tensor, dropout_mask: Tensor | None = None) -> Tensor:
        """Scores; kept (B, T'·D, or D of a mean): dropout's factors of the pooled features, drawn by the caller."""
        frames = self.backbone(clips)
        pooled = frames.mean(1) if self.pool == "mean" else frames.flatten(1)
        return self.head(pooled if dropout_mask is None else pooled * dropout_mask)

    def weight_per_step(self) -> Tensor:
        """What the head multiplies features with, (C, T', D); T' is 1 of a mean, and of "concat" a step's share."""
        return self.head.weight.detach().unflatten(1, (self.num_steps, -1))

    def train(self, mode: bool = True) -> "VideoClassifier":
        super().train(mode)
        eval_frozen_modules(self.backbone)
        return self

    def layer_depth(self, name: str) -> int:
        """How deep the weight of this name lies: 0 in the head, 1 in the last block, and so on."""
        return 0 if name.startswith("head.") else self._layer_depths[name.removeprefix("backbone.")]


def count_time_steps(backbone: Backbone, *, num_frames: int, image_size: int) -> int:
    """How many time steps a backbone makes of a clip of so many frames of so many pixels."""
    weight = next(backbone.parameters())
    was_training = backbone.training
    backbone.eval()
    with torch.no_grad():
        steps = backbone(
            torch.zeros(1, 3, num_frames, image_size, image_size, device=weight.device, dtype=weight.dtype)
        ).shape[1]
    backbone.train(was_training)
    return steps


class MLPHead(nn.Module):
    """Linear layers with ReLU between them, on the last axis of any shape.

    num_layers: how many linear layers; `batch_norm` puts batch norm after each hidden one, over all leading axes.
    """

    def __init__(
        self, in_features: int, out_features: int, *, hidden_dim: int, num_layers: int = 2, batch_norm: bool = False
    ) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for _ in range(num_layers - 1):
            steps.append(nn.Linear(in_features, hidden_dim, bias=not batch_norm))
            if batch_norm:
                steps.append(nn.BatchNorm1d(hidden_dim))
            steps.append(nn.ReLU())
            in_features = hidden_dim
        self.layers = nn.Sequential(*steps, nn.Linear(in_features, out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(0, -2)).unflatten(0, x.shape[:-1])
