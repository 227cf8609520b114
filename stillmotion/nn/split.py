"""How per-frame embeddings are split into what stays and what changes."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman


@dataclass(frozen=True)
class SplitConfig:
    """How per-frame embeddings are split; called with frames (b, T, M) it returns (static, dynamic), (b, M · delays).

    Attributes:
        how: none leaves the embedding whole; slow, riesz and eig as in `koopman.split`.
        radius: ξ; what lies within ξ of 1 in the spectrum is static.
        weight: project (static + dynamic = mean frame) or advance (the paper's Eq. 21).
        ridge: of the operator's estimate, relative to the frames' mean square.
        power: how sharply "slow" cuts at the radius.
        normalize: frames are L2-normalised first.
        delays: frames that stand side by side in a step, each step one frame after the other. What goes on within so
            many frames is then kept as it went, where one frame at a time is averaged over the clip (Arbabi and Mezić,
            "Ergodic theory, dynamic mode decomposition, and computation of spectral properties of the Koopman
            operator", SIAM J. Appl. Dyn. Syst. 16, 2017).
    """

    how: Literal["none", "slow", "riesz", "eig"] = "slow"
    radius: float = 0.15
    weight: Literal["project", "advance"] = "project"
    ridge: float = 1e-3
    power: int = 2
    normalize: bool = True
    delays: int = 1

    def __post_init__(self) -> None:
        if self.delays < 1:
            raise StillmotionError(f"split.delays is {self.delays}; it must be at least 1, a frame at a time")

    @property
    def least_frames(self) -> int:
        """Time steps that a clip must have to be split."""
        return koopman.LEAST_FRAMES + self.delays - 1

    def width(self, channels: int) -> int:
        """Channels of either half, of frames with so many."""
        return channels * self.delays

    def __call__(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        if self.how == "none":
            raise StillmotionError("split.how is 'none'; choose slow, riesz or eig to split")
        if self.delays > 1:
            if frames.shape[1] < self.least_frames:
                raise StillmotionError(
                    f"clip has {frames.shape[1]} time steps; {self.delays} side by side leave too few for halves: "
                    "raise --data.frames or lower --method.split.delays"
                )
            frames = frames.unfold(1, self.delays, 1).flatten(2)
        return koopman.split(
            frames, radius=self.radius, how=self.how, weight=self.weight, ridge=self.ridge, power=self.power
        )


class Embedding(NamedTuple):
    """What a clip shows and how it moves: whole, static, dynamic (b, D), motion (b, M) and frames (b, T, D).

    whole: the mean over frames. static: what stays of it. dynamic: what changes of it. motion: where things go, as
    `functional.motion` reads it off the places of frames that were seen one by one; of a network of clips, dynamic.
    Of fewer than three time steps there are no halves: static and dynamic are then (b, 0), and so is motion where it is
    dynamic, or where there is one frame.
    """

    whole: Tensor
    static: Tensor
    dynamic: Tensor
    motion: Tensor
    frames: Tensor
