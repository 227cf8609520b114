"""Options of `stillmotion static-dynamic evaluate`."""

from dataclasses import dataclass, replace
from typing import Annotated

from tyro.conf import arg

from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated
from stillmotion.utils.option_types import FeatureKind


@dataclass(frozen=True)
class StaticDynamicDataConfig:
    """The versions of a data set.

    Attributes:
        videos: The original videos. Layout, fold and annotations apply to all three versions.
        static_data: Folder of the static version (from `static-dynamic make`).
        dynamic_data: Folder of the dynamic version (from `static-dynamic make`).
    """

    videos: TrainTestConfig
    static_data: Annotated[str | None, arg(metavar="FOLDER")] = None
    dynamic_data: Annotated[str | None, arg(metavar="FOLDER")] = None

    def versions(self) -> dict[str, TrainTestConfig]:
        """Return the versions that are given, by name."""
        paths = {"plain": self.videos.path, "static": self.static_data, "dynamic": self.dynamic_data}
        return {name: replace(self.videos, path=path) for name, path in paths.items() if path}


@dataclass(frozen=True)
class StaticDynamicEvalConfig(ChoiceValidated):
    """Options of all probes of a comparison.

    Attributes:
        num_clips: Number of evenly spaced clips per video.
        feature_kinds: Feature kinds to probe; tables show the first.
        confidence_level: Confidence level of the intervals, e.g. 0.95.
        n_resamples: Number of bootstrap resamples of the test videos.
    """

    num_clips: int = 4
    feature_kinds: Annotated[tuple[FeatureKind, ...], arg(name="features")] = ("whole",)
    confidence_level: float = 0.95
    n_resamples: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.feature_kinds:
            raise StillmotionError("No feature kind given. Add --features, e.g. --features whole static.")
