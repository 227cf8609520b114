"""How per-frame embeddings are split into what stays and what changes."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman


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
    """What a clip shows and how it moves: whole, static, dynamic (b, D) and frames (b, T, D).

    Of fewer than three time steps there are no halves: static and dynamic are then (b, 0).
    """

    whole: Tensor
    static: Tensor
    dynamic: Tensor
    frames: Tensor
