"""A transfer run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar

from stillmotion.config.base import RunConfig, at_least, in_full
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.methods.transfer import TransferMethodConfig
from stillmotion.nn.images import ImagesConfig
from stillmotion.options import Workers


@dataclass(frozen=True)
class PairsConfig(Videos):
    """Which videos, and which pairs of their frames.

    Attributes:
        gap: δ, from one frame to the other, of the video's length.
        size: pixels a side.
        area: least and largest share of a frame that a crop covers.
        flip: the probability that both frames are mirrored.
        pairs: different pairs of a video, which epochs take in turn; 0 draws new ones in each epoch.
        keep: tokens are computed once and kept on disk, where pairs and windows of positions are fixed.
        seed: of pairs, crops and fixed windows; --train.seed is of weights and order.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable video.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    gap: float = 0.15
    size: int = 224
    area: tuple[float, float] = (0.5, 1.0)
    flip: float = 0.5
    pairs: int = 0
    keep: bool = True
    seed: int = 0
    workers: Workers = -1
    strict: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "data", 1, "size")
        at_least(self, "data", 0, "pairs", "seed")
        at_least(self, "data", -1, "workers")
        if not 0 <= self.flip <= 1:
            raise StillmotionError(f"data.flip is {self.flip}; a probability lies from 0 to 1")
        if not 0 < self.gap <= 1:
            raise StillmotionError(f"data.gap is {self.gap}; it lies above 0 and at most at 1")


@dataclass(frozen=True)
class TransferConfig(RunConfig):
    """Everything that decides what a transfer run computes."""

    verb: ClassVar[str] = "transfer"
    images: ImagesConfig = field(default_factory=ImagesConfig)
    data: PairsConfig = field(default_factory=PairsConfig)
    method: TransferMethodConfig = field(default_factory=TransferMethodConfig)

    def __post_init__(self) -> None:
        places = self.method.positions
        if 0 < places.fixed < places.windows:
            raise StillmotionError(
                f"{places.windows} windows are taken of {places.fixed} fixed ones; raise --method.positions.fixed"
            )
        object.__setattr__(self, "train", in_full(self.train))
        if not self.train.plain:
            raise StillmotionError(
                "a transfer trains one small layer: in fp32 and in whole batches, neither checkpointed nor compiled"
            )

    @property
    def keeps_tokens(self) -> bool:
        """Whether the tokens of an epoch come again, so that they can be kept."""
        places = self.method.positions
        return self.data.keep and self.data.pairs > 0 and (places.crop in ("none", "centre") or places.fixed > 0)
