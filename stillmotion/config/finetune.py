"""A fine-tuning run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stillmotion.config.base import ClipsConfig, StartedConfig, at_least
from stillmotion.data.augment import Augment
from stillmotion.data.halves import Halves
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.videos import Located
from stillmotion.errors import StillmotionError
from stillmotion.nn.blocks import Unfreeze
from stillmotion.nn.classifier import Pool
from stillmotion.nn.intake import Normalisation
from stillmotion.options import Fold


@dataclass(frozen=True)
class CropConfig:
    """How a training clip differs each time it is seen; one draw for all its frames.

    Attributes:
        area: least and largest share of the frame that a crop covers.
        flip: how often it is mirrored; 0 where left and right are labels, as in Something-Something.
        colour: largest change of brightness, contrast, saturation and hue.
        colour_p: how often colours change.
        grey: how often they are taken away.
    """

    area: tuple[float, float] = (0.4, 1.0)
    flip: float = 0.5
    colour: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    colour_p: float = 0.8
    grey: float = 0.0

    def augment(self, size: int, normalisation: Normalisation) -> Augment:
        """The augmentation at this size."""
        mean, std = normalisation
        return Augment(
            size,
            area=self.area,
            flip=self.flip,
            jitter=self.colour,
            jitter_p=self.colour_p,
            gray=self.grey,
            blur_p=0.0,
            mean=mean,
            std=std,
        )


@dataclass(frozen=True)
class LabelledConfig(ClipsConfig, Located):
    """Which labelled videos, what is taken of them in training, and how they are tested.

    Attributes:
        fold: which of a set's splits; None is its first. A set without a split is parted 70/30.
        per_class: training videos of each class, chosen by `seed`, to learn from few; 0 takes all.
        target: which label, where videos have several: color, shape, brightness or trajectory of synthetic ones.
        clips: of each training video in an epoch, each at a place of its own.
        augment: how training clips vary.
        test_clips: K, clips of each test video, evenly spaced; its scores are the mean of their softmax.
        test_crops: of each test clip: 1, the centre, or 3 along the longer edge.
        test_full: test crops are as large as the resized frame, as in a test at 256 of a network at 224.
        seed: of the parting, where the set has no split, and of `per_class`.
        synthetic: the drawn videos that the path "synthetic" stands for: so many to train on, as many to test on.
    """

    fold: Fold = None
    per_class: int = 0
    target: str = ""
    clips: int = 1
    augment: CropConfig = field(default_factory=CropConfig)
    test_clips: int = 10
    test_crops: Literal[1, 3] = 1
    test_full: bool = False
    seed: int = 0
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        ClipsConfig.__post_init__(self)
        Located.__post_init__(self)
        at_least(self, "data", 1, "clips", "test_clips")
        at_least(self, "data", 0, "per_class", "seed")

    def halves(self) -> Halves:
        """The videos to train on and to test on."""
        return Halves(
            self.path,
            self.layout,
            self.annotations,
            fold=self.fold,
            videos=self.synthetic.videos,
            seed=self.seed,
        )


@dataclass(frozen=True)
class HeadConfig:
    """The classifier, what is trained below it, and its targets.

    Attributes:
        pool: mean over time, or order: time steps side by side, so that a clip is told from its reverse.
        unfreeze: all of the encoder, none of it, or its last so many blocks and what lies behind them; 0 trains a
            transformer's last norm and the projection of a transfer run.
        dropout: of the pooled features.
        smoothing: share of a target that goes to all classes alike.
        mixup: α of the Beta distribution by which neighbours in a batch are mixed; 0 mixes none.
    """

    pool: Pool = "mean"
    unfreeze: Unfreeze = "all"
    dropout: float = 0.5
    smoothing: float = 0.0
    mixup: float = 0.0

    def __post_init__(self) -> None:
        for name in ("dropout", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise StillmotionError(f"head.{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if self.mixup < 0:
            raise StillmotionError(f"head.mixup is {self.mixup}; it must be at least 0")


@dataclass(frozen=True)
class FinetuneConfig(StartedConfig):
    """Everything that decides what a fine-tuning run computes."""

    verb: ClassVar[str] = "finetune"
    data: LabelledConfig = field(default_factory=LabelledConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
