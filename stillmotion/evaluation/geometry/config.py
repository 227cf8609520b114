"""Options of `stillmotion geometry`."""

from dataclasses import dataclass
from typing import Literal

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated


@dataclass(frozen=True)
class GeometryConfig(ChoiceValidated):
    """Which videos are measured, and how.

    Attributes:
        convention: Definitions of the metrics. paper: distances of patches at the same position (Eq. 47-53), cycles of
            all patches between neighboring frames. authors: as in the authors' script (nearest patches, closest half,
            radii over patches; cycles of pooled patches 0.15 of the video apart, by dot product; effective rank of
            tokens as they are, as a fraction of the largest possible).
        max_videos: Maximum number of videos, sampled at random.
        num_frames: Evenly spaced frames per video; an odd number (default 7), or for authors 40 of which 3 at
            either end are dropped.
        image_size: Input size in pixels; overrides the run's.
        gamma: γ in the margin D = D_inter - γ·D_intra; estimate computes it from all rows (Eq. 54).
        temperature: Softmax temperature of the patch affinities.
        n_resamples: Number of bootstrap resamples over videos.
        seed: Seed for sampling videos and for the bootstrap.
    """

    convention: Literal["paper", "authors"] = "paper"
    max_videos: int = 1000
    num_frames: int | None = None
    image_size: int | None = None
    gamma: float | Literal["estimate"] = 0.3
    temperature: float = 0.03
    n_resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        num_frames = self.resolved_num_frames()
        if self.convention == "authors" and num_frames < 8:
            raise StillmotionError(
                f"authors drops 3 frames at either end, so {num_frames} frames are too few. Use --num-frames 8 or more."
            )
        if self.convention == "paper" and (num_frames < 3 or num_frames % 2 == 0):
            raise StillmotionError(f"--num-frames must be odd and at least 3, got {num_frames}.")

    def resolved_num_frames(self) -> int:
        """Return the number of frames per video."""
        return self.num_frames if self.num_frames is not None else 7 if self.convention == "paper" else 40
