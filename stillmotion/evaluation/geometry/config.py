"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated


@dataclass(frozen=True)
class GeometryConfig(ChoiceValidated):
    """What is measured of videos, and how.

    Attributes:
        distance_definition: of distances; paper takes patches of the same place, as printed (Eq. 47-53), reference-code as in
            their script: within a video the closest half of nearest patches, and radii over patches.
        max_videos: at most so many, drawn at random.
        num_frames: of each video, evenly spaced; 7, an odd number, or the authors' 40, less 3 at either end.
        image_size: pixels a side, in place of the run's.
        gamma: γ of the margin D_inter - γ·D_intra; estimate takes it from all rows (Eq. 54).
        temperature: of the affinities.
        n_resamples: of the bootstrap.
        seed: of the videos that are drawn, and of the bootstrap.
    """

    distance_definition: Annotated[Literal["paper", "reference-code"], arg(name="distance")] = "paper"
    max_videos: int = 1000
    num_frames: int | None = None
    image_size: int | None = None
    gamma: float | Literal["estimate"] = 0.3
    temperature: float = 0.03
    n_resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = self.resolved_num_frames()
        if self.distance_definition == "reference-code" and taken < 8:
            raise StillmotionError(
                f"{taken} frames of a video, less 3 at either end by the authors; raise --num-frames to 8 or more"
            )
        if self.distance_definition == "paper" and (taken < 3 or taken % 2 == 0):
            raise StillmotionError(
                f"{taken} frames of a video; choose an odd number from 3 on, so that one is the middle"
            )

    def resolved_num_frames(self) -> int:
        """How many frames of each video."""
        return self.num_frames if self.num_frames is not None else 7 if self.distance_definition == "paper" else 40
