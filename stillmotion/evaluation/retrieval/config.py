"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Literal

from stillmotion.evaluation.choices import ChoiceValidated

RetrievalProtocol = Literal["train-test", "leave-one-out"]
CandidateSet = Literal["test", "all"]


@dataclass(frozen=True)
class RetrievalConfig(ChoiceValidated):
    """What is asked of which videos.

    Attributes:
        protocol: train-test asks test videos among training videos; leave-one-out each video among the others.
        candidates: the videos of leave-one-out.
        num_clips: evenly spaced clips of each video, averaged; by default 10, or 1 whose frames are spread over the video.
        cache_dir: a folder for the features, in place of the run's own.
    """

    protocol: RetrievalProtocol = "train-test"
    candidates: CandidateSet = "test"
    num_clips: int | None = None
    cache_dir: str | None = None
