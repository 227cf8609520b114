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
    Separability,
    Similarity,
    cycle_accuracy,
    cycle_loss,
    pool_tokens,
    separability,
)
from stillmotion.functional.positions import Crop


@dataclass(frozen=True)
class ProjectionConfig:
    """The projection g; the paper's is LayerNorm(tanh(Linear)).

    Attributes:
        layers: 1, 2 or 3 linear layers with tanh between them; a single one has tanh behind it.
        tanh: False leaves the tanh behind a single layer away.
        norm: a LayerNorm at the end.
        residual: g(z) = z + …, which starts as the identity; neither tanh behind it nor norm.
        start: random, or identity for layers that begin as the identity.
    """

    layers: int = 1
    tanh: bool = True
    norm: bool = True
    residual: bool = False
    start: Literal["random", "identity"] = "random"

    def __post_init__(self) -> None:
        if self.layers not in (1, 2, 3):
            raise StillmotionError(f"a projection of {self.layers} layers; choose 1, 2 or 3")


@dataclass(frozen=True)
class PositionsConfig:
    """Positional encoding augmentation: under which positions the first frame is seen when the walk comes back.

    Attributes:
        crop: none (no augmentation), centre, random, edge or multiple windows of the enlarged grid.
        ratio: α; the grid is enlarged by 1 + α.
        number: windows at a time, of multiple.
        fixed: windows are drawn from so many that are chosen once, and tokens can be cached; 0 draws new ones.
    """

    crop: Crop = "random"
    ratio: float = 10.0
    number: int = 4
    fixed: int = 0

    @property
    def windows(self) -> int:
        """K, how many windows a frame is seen under."""
        return {"none": 0, "multiple": self.number}.get(self.crop, 1)


@dataclass(frozen=True)
class TransferMethodConfig:
    """What the projection is trained for.

    Attributes:
        temperature: τ of the affinities.
        pool: cells of the token grid that are averaged, along either side, before affinities.
        separability: kl or mse between tokens before and after the projection.
        weight: λ of separability.
        scale: unit gives tokens length 1 before they are pooled and held to the model's; own leaves them as they are,
            and similarity is the cosine of pooled ones.
        reduce: separability is summed over tokens and the walk's three views, or a mean over both.
        projection: g.
        positions: of the first frame at the walk's end.
    """

    temperature: float = 0.03
    pool: int = 2
    separability: Separability = "kl"
    weight: float = 3.0
    scale: Literal["unit", "own"] = "unit"
    reduce: Literal["mean", "sum"] = "sum"
    projection: ProjectionConfig = field(default_factory=ProjectionConfig)
    positions: PositionsConfig = field(default_factory=PositionsConfig)


class Projection(nn.Module):
    """g: tokens (…, D) to tokens (…, D)."""

    def __init__(self, width: int, config: ProjectionConfig) -> None:
        super().__init__()
        layers = [nn.Linear(width, width) for _ in range(config.layers)]
        if config.start == "identity":
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
            steps += [nn.Tanh()] if config.tanh and config.layers == 1 else []
            steps += [nn.LayerNorm(width)] if config.norm else []
        self.residual = config.residual
        self.steps = nn.Sequential(*steps)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.steps(tokens)
        return tokens + found if self.residual else found


class Transferred(NamedTuple):
    """The loss, its parts by name as they are logged, and the share of patches that come back (detached)."""

    total: Tensor
    parts: dict[str, Tensor]
    accuracy: Tensor


class Transfer(nn.Module):
    """The projection and its loss on tokens, whichever model they come from."""

    def __init__(self, width: int, config: TransferMethodConfig) -> None:
        super().__init__()
        self.config = config
        self.projection = Projection(width, config.projection)

    def forward(self, first: Tensor, second: Tensor, back: Tensor | None, grid: tuple[int, int]) -> Transferred:
        """Means over videos, of tokens (B, N, D) of frames t1 and t2.

        back: t1 again under K windows of positions, (B, K, N, D); None is t1 as it was. grid: rows and columns.
        """
        c = self.config
        seen = [first, second] if back is None else [first, second, back.flatten(0, 1)]
        projected = [self.projection(tokens) for tokens in seen]
        if c.scale == "unit":
            seen, projected = ([F.normalize(tokens, dim=-1) for tokens in views] for views in (seen, projected))
        pooled = [pool_tokens(tokens, grid, by=c.pool) for tokens in projected]
        k = 1 if back is None else back.shape[1]
        there, away = (tokens.repeat_interleave(k, 0) for tokens in pooled[:2])
        walk = (there, away, there if back is None else pooled[2])
        similarity: Similarity = "dot" if c.scale == "unit" else "cosine"
        cycle = cycle_loss(*walk, temperature=c.temperature, similarity=similarity).mean()
        found = cycle_accuracy(*(x.detach() for x in walk), temperature=c.temperature, similarity=similarity)
        means = [separability(z, p, how=c.separability).mean() for z, p in zip(seen, projected, strict=True)]
        # The walk has three views: without other positions, the first frame is two of them.
        apart = sum(means, start=means[0] if back is None else torch.zeros_like(cycle))
        apart = apart * first.shape[1] if c.reduce == "sum" else apart / 3
        parts = {"cycle": cycle.detach(), "separability": apart.detach()}
        return Transferred(cycle + c.weight * apart, parts, found.mean())
