"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated
from stillmotion.utils.option_types import FeatureKind

SearchBy = Literal[FeatureKind, "appearance"]


@dataclass(frozen=True)
class SearchConfig(ChoiceValidated):
    """What is found.

    Attributes:
        by: motion finds what moves alike, look what looks alike; without an index also whole (its default), static
            (which is the look), dynamic (what changes of a frame's mean feature) and concat.
        motion_weight: of look and motion, in place of --by: 0 is look alone, 1 motion alone; an index is asked at 0.5.
        top_k: how many to find.
        start: of the moment of the query that is meant, in seconds.
        end: of that moment.
        num_clips: evenly spaced clips of each video, averaged; by default 10, or 1 whose frames are spread over the video.
        cache_dir: a folder for the features, in place of the run's own; the query's are not kept. Without an index.
    """

    by: SearchBy | None = None
    motion_weight: float | None = None
    top_k: int = 10
    start: Annotated[float | None, arg(name="from")] = None
    end: Annotated[float | None, arg(name="to")] = None
    num_clips: int | None = None
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k < 1:
            raise StillmotionError(f"top is {self.top_k}; ask for at least 1")
        if self.by is not None and self.motion_weight is not None:
            raise StillmotionError(
                f"--by {self.by} and --motion-weight {self.motion_weight:g} are both given; choose one"
            )
        if self.motion_weight is not None and not 0 <= self.motion_weight <= 1:
            raise StillmotionError(f"mix is {self.motion_weight:g}; it lies between 0, by look, and 1, by motion")
