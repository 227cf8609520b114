"""A fine-tuning run's complete configuration."""

from dataclasses import dataclass, field
from typing import Literal

from stillmotion.config import TrainConfig
from stillmotion.data.augment import Augment
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import OptimConfig


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

    def augment(self, size: int, like: Augment) -> Augment:
        """The augmentation at this size, normalised as another one is."""
        return Augment(
            size,
            area=self.area,
            flip=self.flip,
            jitter=self.colour,
            jitter_p=self.colour_p,
            gray=self.grey,
            blur_p=0.0,
            mean=like.mean,
            std=like.std,
        )


@dataclass(frozen=True)
class LabelledConfig:
    """Which labelled videos, what is taken of them in training, and how they are tested.

    Attributes:
        path: labelled videos: a folder class/video.mp4, a list, a public set's folder, or "synthetic".
        kind: auto goes by what lies there; else the kind of the set.
        fold: which of a set's splits; None is its first. A set without a split is parted 70/30.
        annotations: where a public set's split files lie, if not beside its videos.
        per_class: training videos of each class, chosen by `seed`, to learn from few; 0 takes all.
        target: which label, where videos have several: color, shape, brightness or trajectory of synthetic ones.
        frames: of a clip; 0 takes the encoder's own. What stands behind the encoder's @ comes first.
        stride: from one frame of a clip to the next; 0 as above.
        size: pixels a side; 0 as above.
        augment: how training clips vary.
        test_clips: K, clips of each test video, evenly spaced; its scores are the mean of their softmax.
        test_crops: of each test clip: 1, the centre, or 3 along the longer edge.
        test_full: test crops are as large as the resized frame, as in a test at 256 of a network at 224.
        seed: of the parting, where the set has no split, and of `per_class`.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable training video.
        synthetic: the drawn videos that the path "synthetic" stands for: so many to train on, as many to test on.
    """

    path: str = ""
    kind: str = "auto"
    fold: int | None = None
    annotations: str | None = None
    per_class: int = 0
    target: str = ""
    frames: int = 0
    stride: int = 0
    size: int = 0
    augment: CropConfig = field(default_factory=CropConfig)
    test_clips: int = 10
    test_crops: Literal[1, 3] = 1
    test_full: bool = False
    seed: int = 0
    workers: int = -1
    strict: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)


@dataclass(frozen=True)
class HeadConfig:
    """The classifier and its targets.

    Attributes:
        dropout: of the pooled features.
        smoothing: share of a target that goes to all classes alike.
        mixup: α of the Beta distribution by which neighbours in a batch are mixed; 0 mixes none.
    """

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
class FinetuneConfig:
    """Everything that decides what a fine-tuning run computes.

    Attributes:
        recipe: the named configuration it began as; --list names all.
        encoder: where it starts from: a run folder, a recipe's name (its network, untrained), a folder that
            transformers wrote, or i3d:<file>; options such as @frames=16,size=112 behind it.
        untrained: start from that encoder's network with fresh weights, drawn by --train.seed.
    """

    recipe: str = ""
    encoder: str = ""
    untrained: bool = False
    data: LabelledConfig = field(default_factory=LabelledConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
