"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from stillmotion.evaluation.choices import ChoiceValidated
from stillmotion.utils.option_types import FeatureKind

SplitChoice = Literal["test", "train", "all"]
DistanceMetric = Literal["euclidean", "cosine"]


@dataclass(frozen=True)
class ClusteringConfig(ChoiceValidated):
    """What is looked at.

    Attributes:
        feature_kinds: kinds of embedding.
        split: whose videos are looked at; classes are ranked by retrieval of test videos among training videos.
        metric: of silhouette scores and maps; the paper does not say its own.
        num_clips: evenly spaced clips of each video, averaged; by default 10, or 1 whose frames are spread over the video.
        cache_dir: a folder for the features, in place of the run's own.
    """

    feature_kinds: Annotated[tuple[FeatureKind, ...], arg(name="features")] = ("whole", "static", "dynamic", "motion")
    split: SplitChoice = "test"
    metric: DistanceMetric = "euclidean"
    num_clips: int | None = None
    cache_dir: str | None = None
