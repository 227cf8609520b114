"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Literal

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated


@dataclass(frozen=True)
class LinearProbeConfig(ChoiceValidated):
    """How a probe is made.

    Attributes:
        preset: logistic is logistic regression on 4 clips; k400 the Kinetics protocol: SGD on a new random clip of each
            training video in each of 60 epochs, tested on 10 clips × 3 crops; k400-3 the same, tested on 3 clips.
        num_clips: evenly spaced, of each (k400: test) video, in place of the preset's, or of 1 whose frames are spread
            over the video.
        sgd_batch_size: of k400, training clips of a step over all processes; the rate is 0.5 for each 64.
        cache_dir: a folder for features: the same evenly spaced clips in every epoch, each embedded once. All features are
            then held in memory.
        precision: of the frozen network, by autocast; fp32 is none.
        compare_untrained: the network that the run started from, beside it.
    """

    preset: Literal["logistic", "k400", "k400-3"] = "logistic"
    num_clips: int | None = None
    sgd_batch_size: int = 64
    cache_dir: str | None = None
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    compare_untrained: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sgd_batch_size < 1:
            raise StillmotionError(f"sgd_batch is {self.sgd_batch_size}; a step takes at least 1 clip")
        if self.preset == "logistic" and self.sgd_batch_size != 64:
            raise StillmotionError(
                f"--sgd-batch-size {self.sgd_batch_size} is of the preset k400; logistic takes no steps"
            )
