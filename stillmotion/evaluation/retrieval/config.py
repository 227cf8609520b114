"""Options of `stillmotion retrieve`."""

from dataclasses import dataclass
from typing import Literal

from stillmotion.evaluation.choices import ChoiceValidated

RetrievalProtocol = Literal["train-test", "leave-one-out"]
CandidateSet = Literal["test", "all"]


@dataclass(frozen=True)
class RetrievalConfig(ChoiceValidated):
    """Protocol of retrieval.

    Attributes:
        protocol: train-test: test videos query the training videos. leave-one-out: every video queries all others.
        candidates: Videos used for leave-one-out: the test split or all videos.
        num_clips: Number of evenly spaced clips per video, whose embeddings are averaged; default 10, or 1 if the
            encoder samples frames over the whole video.
        cache_dir: Folder for cached features; default: the run folder of the encoder.
    """

    protocol: RetrievalProtocol = "train-test"
    candidates: CandidateSet = "test"
    num_clips: int | None = None
    cache_dir: str | None = None
