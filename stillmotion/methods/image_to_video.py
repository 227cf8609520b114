"""Image-to-video transfer: a projection of frozen image-model tokens, with cycle and separability loss.

"From Static to Dynamic: Exploring Self-supervised Image-to-Video Representation Transfer Learning". The loss is that of
the authors' training: tokens before and after the projection are L2-normalized, means of 2×2 tokens are compared by dot
product, and separability is summed over a frame's tokens and the three views of the cycle.
Shapes: B videos, K position windows, N tokens, D channels.
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

_INIT_STD = 0.02
_AUTHORS_FLOOR = 1e-6  # of a probability


@dataclass(frozen=True)
class ProjectionConfig:
    """Projection of tokens; the paper's is LayerNorm(tanh(Linear)).

    Attributes:
        num_layers: Number of linear layers (1 to 3), with tanh between them. A single layer is followed by tanh.
        final_tanh: Apply tanh after a single layer.
        layer_norm: Apply LayerNorm at the end.
        residual: Add the input: g(z) = z + …, which starts as the identity. Without final tanh and LayerNorm.
        init: Initialization of the layers: random (normal with standard deviation 0.02, zero bias), identity, or
            checkpoint (the projection in the image model's file, where the authors released one).
    """

    num_layers: int = 1
    final_tanh: bool = True
    layer_norm: bool = True
    residual: bool = False
    init: Literal["random", "identity", "checkpoint"] = "random"

    def __post_init__(self) -> None:
        if self.num_layers not in (1, 2, 3):
            raise StillmotionError(f"--method.projection.num-layers must be 1, 2 or 3, got {self.num_layers}.")


@dataclass(frozen=True)
class PositionAugmentConfig:
    """Positional encoding augmentation of the first frame at the end of the cycle.

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
        """Number of position windows per frame (K)."""
        return {"none": 0, "multiple": self.num_windows}.get(self.window, 1)


@dataclass(frozen=True)
class TransferMethodConfig:
    """Losses of image-to-video transfer.

    Attributes:
        temperature: Temperature τ of the patch affinities.
        token_pool_size: Side length of the average pooling of the token grid before affinities are computed.
        separability_loss: Separability loss between tokens before and after the projection: kl or mse.
        separability_weight: Weight λ of the separability loss.
        normalize_tokens: L2-normalize tokens before pooling and compare them by dot product. Off: tokens keep their
            norm and pooled tokens are compared by cosine.
        separability_reduction: Reduction of the kl separability loss over tokens and the three views: sum or mean. mse
            is always a mean.
        convention: Where paper and training code leave a choice. library: no floor under probabilities, position
            tables enlarged in one step, windows of its own for each video. authors: a floor of 1e-6 in the cycle loss,
            position tables resized to the frame before they are enlarged, one draw of windows for a batch.
        projection: The projection g.
        positions: Position augmentation of the first frame at the end of the cycle.
    """

    temperature: float = 0.03
    token_pool_size: int = 2
    separability_loss: SeparabilityMetric = "kl"
    separability_weight: float = 3.0
    normalize_tokens: bool = True
    separability_reduction: Literal["mean", "sum"] = "sum"
    convention: Literal["library", "authors"] = "library"
    projection: ProjectionConfig = field(default_factory=ProjectionConfig)
    positions: PositionAugmentConfig = field(default_factory=PositionAugmentConfig)


class TokenProjection(nn.Module):
    """Projection of tokens (…, D) to tokens (…, D).

    Args:
        token_dim: Dimension of the tokens (D).
        config: Configuration of the projection.
    """

    def __init__(self, token_dim: int, config: ProjectionConfig) -> None:
        super().__init__()
        layers = [nn.Linear(token_dim, token_dim) for _ in range(config.num_layers)]
        for layer in layers:
            nn.init.zeros_(layer.bias)
            if config.init == "identity":
                nn.init.eye_(layer.weight)
            else:
                nn.init.normal_(layer.weight, std=_INIT_STD)
        if config.residual:
            nn.init.zeros_(layers[-1].weight)
            nn.init.zeros_(layers[-1].bias)
        modules: list[nn.Module] = [layers[0]]
        for layer in layers[1:]:
            modules += [nn.Tanh(), layer]
        if not config.residual:
            modules += [nn.Tanh()] if config.final_tanh and config.num_layers == 1 else []
            modules += [nn.LayerNorm(token_dim)] if config.layer_norm else []
        self.residual = config.residual
        self.layers = nn.Sequential(*modules)

    def forward(self, tokens: Tensor) -> Tensor:
        projected = self.layers(tokens)
        return tokens + projected if self.residual else projected


class TransferOutput(NamedTuple):
    """Loss of a batch of frame pairs.

    Attributes:
        total: The loss.
        losses: Its parts by name, detached.
        cycle_accuracy: Fraction of patches that return to their position, detached.
    """

    total: Tensor
    losses: dict[str, Tensor]
    cycle_accuracy: Tensor


class TransferLoss(nn.Module):
    """Projection and its loss on tokens of any image model.

    Args:
        token_dim: Dimension of the tokens (D).
        config: Configuration of the projection and the losses.
    """

    def __init__(self, token_dim: int, config: TransferMethodConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = TokenProjection(token_dim, config.projection)

    def forward(
        self, first: Tensor, second: Tensor, first_shifted: Tensor | None, grid_size: tuple[int, int]
    ) -> TransferOutput:
        """Compute the loss, a mean over videos.

        Args:
            first: Tokens (B, N, D) of the first frame.
            second: Tokens (B, N, D) of the second frame.
            first_shifted: Tokens (B, K, N, D) of the first frame under K position windows; None uses `first`.
            grid_size: Rows and columns of the token grid.
        """
        c = self.config
        frozen = [first, second] if first_shifted is None else [first, second, first_shifted.flatten(0, 1)]
        projected = [self.projection(tokens) for tokens in frozen]
        if c.normalize_tokens:
            frozen, projected = ([F.normalize(tokens, dim=-1) for tokens in views] for views in (frozen, projected))
        pooled = [pool_tokens(tokens, grid_size, factor=c.token_pool_size) for tokens in projected]
        k = 1 if first_shifted is None else first_shifted.shape[1]
        start, middle = (tokens.repeat_interleave(k, 0) for tokens in pooled[:2])
        views = (start, middle, start if first_shifted is None else pooled[2])
        similarity: Similarity = "dot" if c.normalize_tokens else "cosine"
        floor = _AUTHORS_FLOOR if c.convention == "authors" else 0.0
        cycle = cycle_loss(*views, temperature=c.temperature, similarity=similarity, floor=floor).mean()
        accuracy = cycle_accuracy(*(x.detach() for x in views), temperature=c.temperature, similarity=similarity)
        means = [
            separability_loss(z, p, metric=c.separability_loss).mean() for z, p in zip(frozen, projected, strict=True)
        ]
        # The cycle has three views: without position windows, the first frame is two of them.
        separability = sum(means, start=means[0] if first_shifted is None else torch.zeros_like(cycle))
        is_sum = c.separability_reduction == "sum" and c.separability_loss == "kl"
        separability = separability * first.shape[1] if is_sum else separability / 3
        losses = {"cycle": cycle.detach(), "separability": separability.detach()}
        return TransferOutput(cycle + c.separability_weight * separability, losses, accuracy.mean())
