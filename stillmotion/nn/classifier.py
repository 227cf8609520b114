"""A backbone with a linear classifier on its pooled features.

Shapes: B clips, T frames, T' time steps, D channels, C classes.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.blocks import depths, rest

Pool = Literal["mean", "order"]

_SPREAD = 0.01


class Classifier(nn.Module):
    """Clips (B, 3, T, H, W) to scores (B, C): features pooled over time and space, then a linear map.

    classes: C. The head's weights start small, so that the first scores are almost equal.
    pool: "mean" over time, which no order of frames changes; "order" keeps time steps side by side.
    steps: T', of "order"; see `time_steps`.
    """

    def __init__(self, backbone: Backbone, classes: int, *, pool: Pool = "mean", steps: int = 1) -> None:
        super().__init__()
        if pool == "order" and steps < 2:
            raise StillmotionError(
                "head.pool is order, but the encoder makes one time step of a clip; show it more frames, take one "
                "that keeps time, or choose --head.pool mean"
            )
        self.backbone, self.pool, self.steps = backbone, pool, steps if pool == "order" else 1
        self.head = nn.Linear(self.steps * backbone.width, classes)
        nn.init.normal_(self.head.weight, std=_SPREAD)
        nn.init.zeros_(self.head.bias)
        self._depths = depths(backbone)

    def forward(self, clips: Tensor, kept: Tensor | None = None) -> Tensor:
        """Scores; kept (B, T'·D, or D of a mean): dropout's factors of the pooled features, drawn by the caller."""
        frames = self.backbone(clips)
        pooled = frames.mean(1) if self.pool == "mean" else frames.flatten(1)
        return self.head(pooled if kept is None else pooled * kept)

    def rows(self) -> Tensor:
        """What the head multiplies features with, (C, T', D); T' is 1 of a mean, and of "order" a step's share."""
        return self.head.weight.detach().unflatten(1, (self.steps, -1))

    def train(self, mode: bool = True) -> "Classifier":
        super().train(mode)
        rest(self.backbone)
        return self

    def depth(self, name: str) -> int:
        """How deep the weight of this name lies: 0 in the head, 1 in the last block, and so on."""
        return 0 if name.startswith("head.") else self._depths[name.removeprefix("backbone.")]


def time_steps(backbone: Backbone, *, frames: int, size: int) -> int:
    """How many time steps a backbone makes of a clip of so many frames of so many pixels."""
    weight = next(backbone.parameters())
    was_training = backbone.training
    backbone.eval()
    with torch.no_grad():
        steps = backbone(torch.zeros(1, 3, frames, size, size, device=weight.device, dtype=weight.dtype)).shape[1]
    backbone.train(was_training)
    return steps
