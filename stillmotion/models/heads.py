"""MLP projection head; backbone with a linear classifier.

Shapes: B clips, T frames, T' time steps, D channels, C classes.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.freeze import eval_frozen_modules, layer_depths

TemporalPool = Literal["mean", "concat"]
_INIT_STD = 0.01


class VideoClassifier(nn.Module):
    """Clips (B, 3, T, H, W) to scores (B, C): features pooled over space and time, then a linear classifier.

    Args:
        backbone: Backbone.
        num_classes: C. The classifier is initialized with small weights, so that the first scores are almost equal.
        pool: "mean" averages the time steps; "concat" concatenates them, so that their order matters.
        num_steps: Number of time steps T', for "concat"; see `count_time_steps`.
    """

    def __init__(
        self, backbone: Backbone, num_classes: int, *, pool: TemporalPool = "mean", num_steps: int = 1
    ) -> None:
        super().__init__()
        if pool == "concat" and num_steps < 2:
            raise StillmotionError(
                f"--head.pool concat needs at least 2 time steps, but the encoder gives {num_steps}. "
                "Increase the frames per clip or use --head.pool mean."
            )
        self.backbone, self.pool, self.num_steps = backbone, pool, num_steps if pool == "concat" else 1
        self.head = nn.Linear(self.num_steps * backbone.out_features, num_classes)
        nn.init.normal_(self.head.weight, std=_INIT_STD)
        nn.init.zeros_(self.head.bias)
        self._layer_depths = layer_depths(backbone)

    def forward(self, clips: Tensor, dropout_mask: Tensor | None = None) -> Tensor:
        """Compute scores.

        Args:
            clips: Normalized clips, (B, 3, T, H, W).
            dropout_mask: Factors of the pooled features, sampled by the caller, (B, T'·D), or (B, D) for "mean".

        Returns:
            Scores, (B, C).
        """
        frames = self.backbone(clips)
        pooled = frames.mean(1) if self.pool == "mean" else frames.flatten(1)
        return self.head(pooled if dropout_mask is None else pooled * dropout_mask)

    def train(self, mode: bool = True) -> "VideoClassifier":
        """Set the mode; frozen modules stay in evaluation mode."""
        super().train(mode)
        eval_frozen_modules(self.backbone)
        return self

    def layer_depth(self, name: str) -> int:
        """Depth of a parameter from the output: 0 in the head, 1 in the last block, and so on."""
        return 0 if name.startswith("head.") else self._layer_depths[name.removeprefix("backbone.")]


def count_time_steps(backbone: Backbone, *, num_frames: int, image_size: int) -> int:
    """Count the time steps of a backbone's features.

    Args:
        backbone: Backbone.
        num_frames: Frames per clip.
        image_size: Frame size, in pixels.

    Returns:
        Number of time steps T'.
    """
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
    """Linear layers with ReLU between them, on the last axis of a tensor of any shape.

    Args:
        in_features: Input channels.
        out_features: Output channels.
        hidden_dim: Channels of the hidden layers.
        num_layers: Number of linear layers.
        batch_norm: Add batch norm after each hidden layer, over all leading axes.
    """

    def __init__(
        self, in_features: int, out_features: int, *, hidden_dim: int, num_layers: int = 2, batch_norm: bool = False
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(num_layers - 1):
            layers.append(nn.Linear(in_features, hidden_dim, bias=not batch_norm))
            if batch_norm:
                layers.append(nn.BatchNorm1d(hidden_dim))
            layers.append(nn.ReLU())
            in_features = hidden_dim
        self.layers = nn.Sequential(*layers, nn.Linear(in_features, out_features))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x.flatten(0, -2)).unflatten(0, x.shape[:-1])
