"""Options of `stillmotion probe`."""

from dataclasses import dataclass
from typing import Literal

from stillmotion.errors import StillmotionError
from stillmotion.evaluation.choices import ChoiceValidated


@dataclass(frozen=True)
class LinearProbeConfig(ChoiceValidated):
    """Protocol of a linear probe.

    Attributes:
        preset: Protocol. logistic: logistic regression on 4 clips per video. k400: SGD for 60 epochs on one random
            clip per video and epoch, tested on 10 clips × 3 crops. k400-3: the same, tested on 3 clips.
        num_clips: Number of evenly spaced clips per video (for k400: per test video); default set by the preset, or 1
            if the encoder samples frames over the whole video.
        sgd_batch_size: Clips per SGD step over all processes (k400 presets); the learning rate is 0.5 per 64 clips.
        cache_dir: Folder for cached features. k400 then uses the same evenly spaced clips in every epoch and keeps all
            features in memory.
        precision: Autocast precision of the frozen network; fp32 turns autocast off.
        compare_untrained: Also probe the network with its initial weights.
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
            raise StillmotionError(f"--sgd-batch-size must be at least 1, got {self.sgd_batch_size}.")
        if self.preset == "logistic" and self.sgd_batch_size != 64:
            raise StillmotionError(
                "--sgd-batch-size applies to the k400 presets only; the logistic preset has no SGD steps."
            )
