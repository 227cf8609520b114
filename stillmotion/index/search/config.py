"""Options of `stillmotion search`; light to import."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated
from stillmotion.utils.option_types import FeatureKind

SearchBy = Literal[FeatureKind, "appearance"]


def check_motion_weight(motion_weight: float) -> None:
    """Raise StillmotionError unless a motion weight lies between 0 and 1."""
    if not 0 <= motion_weight <= 1:
        raise StillmotionError(
            f"motion weight must be between 0 (appearance only) and 1 (motion only), got {motion_weight:g}"
        )


@dataclass(frozen=True)
class SearchConfig(ChoiceValidated):
    """Options of a search: what to rank by, the query segment and the number of results.

    Attributes:
        by: Rank by motion or appearance; without an index also by whole (default), static (the same as appearance),
            dynamic or concat.
        motion_weight: Weight w of motion against appearance, 0 to 1: similarity = (1 - w) * appearance + w * motion.
            Default 0.5 with an index. Use instead of --by.
        top_k: Number of results.
        start: Start of the query segment, in seconds.
        end: End of the query segment, in seconds.
        num_clips: Number of evenly spaced clips per video, averaged; default 10, or 1 if the encoder samples frames
            over the whole video. Only without an index.
        cache_dir: Folder for cached features of the searched videos; default is the run folder of the encoder. Only
            without an index.
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
            raise StillmotionError(f"--top-k must be at least 1, got {self.top_k}")
        if self.by is not None and self.motion_weight is not None:
            raise StillmotionError(
                f"--by {self.by} and --motion-weight {self.motion_weight:g} cannot be combined; give one"
            )
        if self.motion_weight is not None:
            check_motion_weight(self.motion_weight)
