"""A backbone and a split: clips in, one embedding with its static and dynamic halves out."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman
from stillmotion.nn.backbones.base import Backbone


@dataclass(frozen=True)
class SplitConfig:
    """How per-frame embeddings are split; called with frames (b, T, M) it returns (static, dynamic).

    Attributes:
        how: none leaves the embedding whole; slow, riesz and eig as in `koopman.split`.
        radius: ξ; what lies within ξ of 1 in the spectrum is static.
        weight: project (static + dynamic = mean frame) or advance (the paper's Eq. 21).
        ridge: of the operator's estimate, relative to the frames' mean square.
        power: how sharply "slow" cuts at the radius.
        normalize: frames are L2-normalised first.
    """

    how: Literal["none", "slow", "riesz", "eig"] = "slow"
    radius: float = 0.15
    weight: Literal["project", "advance"] = "project"
    ridge: float = 1e-3
    power: int = 2
    normalize: bool = True

    def __call__(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        if self.how == "none":
            raise StillmotionError("split.how is 'none'; choose slow, riesz or eig to split")
        return koopman.split(
            frames, radius=self.radius, how=self.how, weight=self.weight, ridge=self.ridge, power=self.power
        )


class Embedding(NamedTuple):
    """What a clip shows and how it moves: whole, static, dynamic (b, D) and frames (b, T, D)."""

    whole: Tensor
    static: Tensor
    dynamic: Tensor
    frames: Tensor


class Encoder(nn.Module):
    """A backbone whose per-frame features are split by the same rule as in training.

    backbone: clips (b, 3, T, H, W) to (b, T, D). split: None takes the library's default.
    """

    def __init__(self, backbone: Backbone, split: SplitConfig | None = None) -> None:
        super().__init__()
        self.backbone = backbone
        self.split = split if split is not None and split.how != "none" else SplitConfig()

    def forward(self, clips: Tensor) -> Embedding:
        return self.embed(self.backbone(clips))

    def embed(self, frames: Tensor) -> Embedding:
        """The embedding of what the backbone says of each frame, (b, T, D)."""
        frames = frames.float()
        static, dynamic = self.split(F.normalize(frames, dim=-1) if self.split.normalize else frames)
        return Embedding(frames.mean(1), static, dynamic, frames)
