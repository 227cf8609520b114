"""A transfer run's complete configuration."""

from dataclasses import dataclass, field

from stillmotion.config import DataConfig, TrainConfig
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.errors import StillmotionError
from stillmotion.methods.transfer import TransferMethodConfig
from stillmotion.nn.images import ImagesConfig
from stillmotion.optim.optimizers import OptimConfig


@dataclass(frozen=True)
class PairsConfig:
    """Which videos, and which pairs of their frames.

    Attributes:
        path: a folder of videos, a list (CSV or "path label" lines), a public set's folder, or "synthetic".
        kind: auto goes by what lies there; else folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99
            or diving48.
        split: train, test or val, where the set has splits.
        annotations: where a public set's split files lie, if not beside its videos.
        gap: δ, from one frame to the other, of the video's length.
        size: pixels a side.
        area: least and largest share of a frame that a crop covers.
        pairs: different pairs of a video, which epochs take in turn; 0 draws new ones in each epoch.
        keep: tokens are computed once and kept on disk, where pairs and windows of positions are fixed.
        seed: of pairs, crops and fixed windows; --train.seed is of weights and order.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable video.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    path: str = ""
    kind: str = "auto"
    split: str | None = None
    annotations: str | None = None
    gap: float = 0.15
    size: int = 224
    area: tuple[float, float] = (0.5, 1.0)
    pairs: int = 0
    keep: bool = True
    seed: int = 0
    workers: int = -1
    strict: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    @property
    def videos(self) -> DataConfig:
        """The same videos, as `open_videos` is told of them."""
        return DataConfig(
            path=self.path,
            kind=self.kind,
            split=self.split,
            annotations=self.annotations,
            synthetic=self.synthetic,
        )


@dataclass(frozen=True)
class TransferConfig:
    """Everything that decides what a transfer run computes.

    Attributes:
        recipe: the named configuration it began as; --list names all.
    """

    recipe: str = ""
    images: ImagesConfig = field(default_factory=ImagesConfig)
    data: PairsConfig = field(default_factory=PairsConfig)
    method: TransferMethodConfig = field(default_factory=TransferMethodConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        places = self.method.positions
        if 0 < places.fixed < places.windows:
            raise StillmotionError(
                f"{places.windows} windows are taken of {places.fixed} fixed ones; raise --method.positions.fixed"
            )
        if self.train.precision != "fp32" or self.train.accumulate != 1:
            raise StillmotionError("a transfer trains one small layer: in fp32 and in whole batches")

    @property
    def keeps_tokens(self) -> bool:
        """Whether the tokens of an epoch come again, so that they can be kept."""
        places = self.method.positions
        return self.data.keep and self.data.pairs > 0 and (places.crop in ("none", "centre") or places.fixed > 0)
