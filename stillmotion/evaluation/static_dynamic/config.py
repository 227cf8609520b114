"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated
from stillmotion.utils.option_types import FeatureKind


@dataclass(frozen=True)
class StaticDynamicEvalConfig(ChoiceValidated):
    """What all probes of a comparison share.

    Attributes:
        num_clips: evenly spaced, of each video.
        feature_kinds: kinds of embedding; concat is static ⊕ dynamic. Tables take the first.
        confidence_level: of the confidence intervals.
        n_resamples: of the test videos, for the intervals.
    """

    num_clips: int = 4
    feature_kinds: Annotated[tuple[FeatureKind, ...], arg(name="features")] = ("whole",)
    confidence_level: float = 0.95
    n_resamples: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.feature_kinds:
            raise StillmotionError("no kind of embedding is asked; give one or more by --features")
