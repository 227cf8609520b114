"""Options of `stillmotion cluster`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from stillmotion.evaluation.choices import ChoiceValidated
from stillmotion.utils.option_types import FeatureKind

SplitChoice = Literal["test", "train", "all"]
DistanceMetric = Literal["euclidean", "cosine"]


@dataclass(frozen=True)
class ClusteringConfig(ChoiceValidated):
    """What is scored and plotted.

    Attributes:
        feature_kinds: Feature kinds to evaluate: whole, static, dynamic, motion, concat (static and dynamic
            concatenated).
        split: Videos to plot and score: test, train or all. Classes are ranked by retrieval of test videos among
            training videos.
        metric: Distance for silhouette scores and t-SNE (the paper does not state its own).
        num_clips: Number of evenly spaced clips per video, whose embeddings are averaged; default 10, or 1 if the
            encoder samples frames over the whole video.
        cache_dir: Folder for cached features; default: the run folder of the encoder.
    """

    feature_kinds: Annotated[tuple[FeatureKind, ...], arg(name="features")] = ("whole", "static", "dynamic", "motion")
    split: SplitChoice = "test"
    metric: DistanceMetric = "euclidean"
    num_clips: int | None = None
    cache_dir: str | None = None
