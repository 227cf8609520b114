"""A fine-tuning run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from stillmotion.data.datasets.config import VideoSource
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.data.transforms.augment import ClipAugmentation
from stillmotion.errors import StillmotionError
from stillmotion.models.freeze import UnfreezeOption
from stillmotion.models.heads import TemporalPool
from stillmotion.models.input_config import Normalization
from stillmotion.training.config import ClipConfig, EncoderRunConfig
from stillmotion.utils.option_types import FoldNumber
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class FinetuneAugmentConfig:
    """How a training clip differs each time it is seen; one draw for all its frames.

    Attributes:
        crop_scale: least and largest share of the frame that a crop covers.
        flip_prob: how often it is mirrored; 0 where left and right are labels, as in Something-Something.
        color_jitter: largest change of brightness, contrast, saturation and hue.
        color_jitter_prob: how often colours change.
        grayscale_prob: how often they are taken away.
    """

    crop_scale: tuple[float, float] = (0.4, 1.0)
    flip_prob: float = 0.5
    color_jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    color_jitter_prob: float = 0.8
    grayscale_prob: float = 0.0

    def build(self, image_size: int, normalization: Normalization) -> ClipAugmentation:
        """The augmentation at this size."""
        mean, std = normalization
        return ClipAugmentation(
            image_size,
            scale=self.crop_scale,
            flip_p=self.flip_prob,
            color_jitter=self.color_jitter,
            color_jitter_p=self.color_jitter_prob,
            gray_p=self.grayscale_prob,
            blur_p=0.0,
            mean=mean,
            std=std,
        )


@dataclass(frozen=True)
class FinetuneDataConfig(ClipConfig, VideoSource):
    """Which labelled videos, what is taken of them in training, and how they are tested.

    Attributes:
        fold: which of a set's splits; None is its first. A set without a split is parted 70/30.
        videos_per_class: training videos of each class, chosen by `seed`, to learn from few; 0 takes all.
        target: which label, where videos have several: color, shape, brightness or trajectory of synthetic ones.
        clips_per_video: of each training video in an epoch, each at a place of its own.
        augment: how training clips vary.
        num_test_clips: K, clips of each test video, evenly spaced; its scores are the mean of their softmax.
        num_test_crops: of each test clip: 1, the centre, or 3 along the longer edge.
        test_full_frame: test crops are as large as the resized frame, as in a test at 256 of a network at 224.
        seed: of the parting, where the set has no split, and of `videos_per_class`.
        synthetic: the drawn videos that the path "synthetic" stands for: so many to train on, as many to test on.
    """

    fold: FoldNumber = None
    videos_per_class: int = 0
    target: str = ""
    clips_per_video: int = 1
    augment: FinetuneAugmentConfig = field(default_factory=FinetuneAugmentConfig)
    num_test_clips: int = 10
    num_test_crops: Literal[1, 3] = 1
    test_full_frame: bool = False
    seed: int = 0
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        ClipConfig.__post_init__(self)
        VideoSource.__post_init__(self)
        check_ranges(self, "data", clips_per_video=(1, None), num_test_clips=(1, None))
        check_ranges(self, "data", videos_per_class=(0, None), seed=(0, None))

    def train_test_config(self) -> TrainTestConfig:
        """The videos to train on and to test on."""
        return TrainTestConfig(
            self.path,
            self.layout,
            self.annotations,
            fold=self.fold,
            num_synthetic=self.synthetic.num_videos,
            split_seed=self.seed,
        )


@dataclass(frozen=True)
class ClassifierConfig:
    """The classifier, what is trained below it, and its targets.

    Attributes:
        pool: mean over time, or order: time steps side by side, so that a clip is told from its reverse.
        unfreeze: all of the encoder, none of it, or its last so many blocks and what lies behind them; 0 trains a
            transformer's last norm and the projection of a transfer run.
        dropout: of the pooled features.
        label_smoothing: share of a target that goes to all classes alike.
        mixup_alpha: α of the Beta distribution by which neighbours in a batch are mixed; 0 mixes none.
    """

    pool: TemporalPool = "mean"
    unfreeze: UnfreezeOption = "all"
    dropout: float = 0.5
    label_smoothing: float = 0.0
    mixup_alpha: float = 0.0

    def __post_init__(self) -> None:
        for name in ("dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise StillmotionError(f"head.{name} is {getattr(self, name)}; it must be at least 0 and below 1")
        if self.mixup_alpha < 0:
            raise StillmotionError(f"head.mixup_alpha is {self.mixup_alpha}; it must be at least 0")


@dataclass(frozen=True)
class FinetuneConfig(EncoderRunConfig):
    """Everything that decides what a fine-tuning run computes."""

    verb: ClassVar[str] = "finetune"
    data: FinetuneDataConfig = field(default_factory=FinetuneDataConfig)
    head: ClassifierConfig = field(default_factory=ClassifierConfig)
