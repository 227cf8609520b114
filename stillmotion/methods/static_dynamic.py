"""How per-frame embeddings are split into what stays and what changes."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman


@dataclass(frozen=True)
class StaticDynamicConfig:
    """How per-frame embeddings are split; called with frames (b, T, M) it returns (static, dynamic), (b, M · delays).

    Attributes:
        method: none leaves the embedding whole; slow, riesz and eig as in `koopman.split`.
        radius: ξ; what lies within ξ of 1 in the spectrum is static.
        weighting: project (static + dynamic = mean frame) or advance (the paper's Eq. 21).
        ridge: of the operator's estimate, relative to the frames' mean square.
        filter_order: how sharply "slow" cuts at the radius.
        normalize: frames are L2-normalised first.
        num_delays: frames that stand side by side in a step, each step one frame after the other. What goes on within so
            many frames is then kept as it went, where one frame at a time is averaged over the clip (Arbabi and Mezić,
            "Ergodic theory, dynamic mode decomposition, and computation of spectral properties of the Koopman
            operator", SIAM J. Appl. Dyn. Syst. 16, 2017).
    """

    method: Literal["none", "slow", "riesz", "eig"] = "slow"
    radius: float = 0.15
    weighting: Literal["project", "advance"] = "project"
    ridge: float = 1e-3
    filter_order: int = 2
    normalize: bool = True
    num_delays: int = 1

    def __post_init__(self) -> None:
        if self.num_delays < 1:
            raise StillmotionError(
                f"static_dynamic.num_delays is {self.num_delays}; it must be at least 1, a frame at a time"
            )

    @property
    def min_frames(self) -> int:
        """Time steps that a clip must have to be split."""
        return koopman.KOOPMAN_MIN_FRAMES + self.num_delays - 1

    def out_features(self, in_features: int) -> int:
        """Channels of either half, of frames with so many."""
        return in_features * self.num_delays

    def __call__(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        if self.method == "none":
            raise StillmotionError("static_dynamic.method is 'none'; choose slow, riesz or eig to split")
        if self.num_delays > 1:
            if frames.shape[1] < self.min_frames:
                raise StillmotionError(
                    f"clip has {frames.shape[1]} time steps; {self.num_delays} side by side leave too few for halves: "
                    "raise --data.num-frames or lower --method.static-dynamic.num-delays"
                )
            frames = frames.unfold(1, self.num_delays, 1).flatten(2)
        return koopman.decompose(
            frames,
            radius=self.radius,
            method=self.method,
            weighting=self.weighting,
            ridge=self.ridge,
            filter_order=self.filter_order,
        )
