"""Image-to-video transfer: a projection of frozen tokens that follows patches through time and keeps what they mean.

"From Static to Dynamic: Exploring Self-supervised Image-to-Video Representation Transfer Learning". The loss is the one
its authors train by: tokens of the model and of g have length 1; means of 2×2 of them are compared by their dot
product; separability is summed over a frame's tokens and over the walk's three views.
Shapes: B videos, K windows of positions, N tokens, D channels.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.errors import StillmotionError
from stillmotion.functional.cycle import (
    SeparabilityMetric,
    Similarity,
    cycle_accuracy,
    cycle_loss,
    pool_tokens,
    separability_loss,
)
from stillmotion.functional.position_embeddings import WindowMode


@dataclass(frozen=True)
class ProjectionConfig:
    """The projection g; the paper's is LayerNorm(tanh(Linear)).

    Attributes:
        num_layers: Number of linear layers (1 to 3), with tanh between them. A single layer is followed by tanh.
        final_tanh: Apply tanh after a single layer.
        layer_norm: Apply LayerNorm at the end.
        residual: Add the input: g(z) = z + …, which starts as the identity. Without final tanh and LayerNorm.
        init: Initialization of the layers: random or identity.
    """

    num_layers: int = 1
    final_tanh: bool = True
    layer_norm: bool = True
    residual: bool = False
    init: Literal["random", "identity"] = "random"

    def __post_init__(self) -> None:
        if self.num_layers not in (1, 2, 3):
            raise StillmotionError(f"a projection of {self.num_layers} layers; choose 1, 2 or 3")


@dataclass(frozen=True)
class PositionAugmentConfig:
    """Positional encoding augmentation: under which positions the first frame is seen when the walk comes back.

    Attributes:
        window: How windows of the enlarged position grid are chosen: none (no augmentation), center, random, edge or
            multiple.
        enlarge_ratio: The position grid is enlarged by 1 + this ratio (α in the paper).
        num_windows: Windows per frame, with --method.positions.window multiple.
        fixed_windows: Draw windows from this many fixed ones, so that tokens can be cached. 0 draws new windows each
            time.
    """

    window: WindowMode = "random"
    enlarge_ratio: float = 10.0
    num_windows: int = 4
    fixed_windows: int = 0

    @property
    def num_views(self) -> int:
        """K, how many windows a frame is seen under."""
        return {"none": 0, "multiple": self.num_windows}.get(self.window, 1)


@dataclass(frozen=True)
class TransferMethodConfig:
    """What the projection is trained for.

    Attributes:
        temperature: Temperature τ of the patch affinities.
        token_pool_size: Side length of the average pooling of the token grid before affinities are computed.
        separability_loss: Separability loss between tokens before and after the projection: kl or mse.
        separability_weight: Weight λ of the separability loss.
        normalize_tokens: L2-normalize tokens before pooling and compare them by dot product. Off: tokens keep their norm
            and pooled tokens are compared by cosine.
        separability_reduction: Reduction of the separability loss over tokens and the three views: sum or mean.
        projection: The projection g.
        positions: Position augmentation of the first frame at the end of the cycle.
    """

    temperature: float = 0.03
    token_pool_size: int = 2
    separability_loss: SeparabilityMetric = "kl"
    separability_weight: float = 3.0
    normalize_tokens: bool = True
    separability_reduction: Literal["mean", "sum"] = "sum"
    projection: ProjectionConfig = field(default_factory=ProjectionConfig)
    positions: PositionAugmentConfig = field(default_factory=PositionAugmentConfig)


class TokenProjection(nn.Module):
    """g: tokens (…, D) to tokens (…, D)."""

    def __init__(self, token_dim: int, config: ProjectionConfig) -> None:
        super().__init__()
        layers = [nn.Linear(token_dim, token_dim) for _ in range(config.num_layers)]
        if config.init == "identity":
            for layer in layers:
                nn.init.eye_(layer.weight)
                nn.init.zeros_(layer.bias)
        if config.residual:
            nn.init.zeros_(layers[-1].weight)
            nn.init.zeros_(layers[-1].bias)
        steps: list[nn.Module] = [layers[0]]
        for layer in layers[1:]:
            steps += [nn.Tanh(), layer]
        if not config.residual:
            steps += [nn.Tanh()] if config.final_tanh and config.num_layers == 1 else []
            steps += [nn.LayerNorm(token_dim)] if config.layer_norm else []
        self.residual = config.residual
        self.layers = nn.Sequential(*steps)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.layers(tokens)
        return tokens + found if self.residual else found


class TransferOutput(NamedTuple):
    """The loss, its parts by name as they are logged, and the share of patches that come back (detached)."""

    total: Tensor
    losses: dict[str, Tensor]
    cycle_accuracy: Tensor


class TransferLoss(nn.Module):
    """The projection and its loss on tokens, whichever model they come from."""

    def __init__(self, token_dim: int, config: TransferMethodConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = TokenProjection(token_dim, config.projection)

    def forward(
        self, first: Tensor, second: Tensor, first_shifted: Tensor | None, grid_size: tuple[int, int]
    ) -> TransferOutput:
        """Means over videos, of tokens (B, N, D) of frames t1 and t2.

        first_shifted: t1 again under K windows of positions, (B, K, N, D); None is t1 as it was. grid: rows and columns.
        """
        c = self.config
        seen = [first, second] if first_shifted is None else [first, second, first_shifted.flatten(0, 1)]
        projected = [self.projection(tokens) for tokens in seen]
        if c.normalize_tokens:
            seen, projected = ([F.normalize(tokens, dim=-1) for tokens in views] for views in (seen, projected))
        pooled = [pool_tokens(tokens, grid_size, factor=c.token_pool_size) for tokens in projected]
        k = 1 if first_shifted is None else first_shifted.shape[1]
        there, away = (tokens.repeat_interleave(k, 0) for tokens in pooled[:2])
        walk = (there, away, there if first_shifted is None else pooled[2])
        similarity: Similarity = "dot" if c.normalize_tokens else "cosine"
        cycle = cycle_loss(*walk, temperature=c.temperature, similarity=similarity).mean()
        found = cycle_accuracy(*(x.detach() for x in walk), temperature=c.temperature, similarity=similarity)
        means = [
            separability_loss(z, p, metric=c.separability_loss).mean() for z, p in zip(seen, projected, strict=True)
        ]
        # The walk has three views: without other positions, the first frame is two of them.
        apart = sum(means, start=means[0] if first_shifted is None else torch.zeros_like(cycle))
        apart = apart * first.shape[1] if c.separability_reduction == "sum" else apart / 3
        parts = {"cycle": cycle.detach(), "separability": apart.detach()}
        return TransferOutput(cycle + c.separability_weight * apart, parts, found.mean())
