"""Fine-tuning configuration: data, augmentation, classifier."""

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
    """Augmentation of training clips; all frames of a clip have the same random parameters.

    Attributes:
        crop_scale: Minimum and maximum crop area, as fractions of the frame.
        flip_prob: Probability of a horizontal flip. Set 0 where left and right are labels, as in Something-Something.
        color_jitter: Maximum jitter of brightness, contrast, saturation and hue.
        color_jitter_prob: Probability of color jitter.
        grayscale_prob: Probability of conversion to grayscale.
    """

    crop_scale: tuple[float, float] = (0.4, 1.0)
    flip_prob: float = 0.5
    color_jitter: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    color_jitter_prob: float = 0.8
    grayscale_prob: float = 0.0

    def build(self, image_size: int, normalization: Normalization) -> ClipAugmentation:
        """Build the augmentation.

        Args:
            image_size: Height and width of the crops.
            normalization: Mean and standard deviation of the encoder's input.
        """
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
    """Labeled videos, how training clips are sampled from them, and how they are tested.

    Attributes:
        fold: Which of the data set's official splits to use. Default: the first. A set without splits is divided 70/30.
        videos_per_class: Training videos per class, chosen with --data.seed, for few-shot training. 0 uses all.
        target: Which label to train on if videos have several, e.g. color, shape, brightness or trajectory of synthetic
            videos.
        clips_per_video: Clips per training video and epoch, each at a random position.
        augment: Augmentation of training clips.
        num_test_clips: Evenly spaced clips per test video. Softmax scores are averaged over clips.
        num_test_crops: Spatial crops per test clip: 1 (center) or 3 (along the longer edge).
        test_full_frame: Test on the whole resized frame instead of a crop, e.g. 256 pixels for a network trained at
            224.
        seed: Random seed of the 70/30 division and of --data.videos-per-class.
        synthetic: Options of the synthetic videos that --data synthetic generates; the same number is used for training
            and testing.
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
        check_ranges(
            self,
            "data",
            clips_per_video=(1, None),
            num_test_clips=(1, None),
            videos_per_class=(0, None),
            seed=(0, None),
        )

    def train_test_config(self) -> TrainTestConfig:
        """Return the train and test split of these videos."""
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
    """Classifier, which part of the encoder is trained, and regularization.

    Attributes:
        pool: Temporal pooling: mean, or concat (time steps side by side, so that a clip differs from its reverse).
        unfreeze: Which part of the encoder to train: all, none, or the last N blocks. 0 trains a transformer's last
            norm and a transfer run's projection.
        dropout: Dropout rate of the pooled features.
        label_smoothing: Label smoothing.
        mixup_alpha: Alpha of the Beta distribution for mixup. 0 disables mixup.
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
    """Complete configuration of a fine-tuning run.

    Attributes:
        data: Labeled videos, and how they are sampled and tested.
        head: Classifier, and which part of the encoder is trained.
        from_scratch: Use the encoder's architecture with random weights, drawn with --train.seed.
    """

    verb: ClassVar[str] = "finetune"
    data: FinetuneDataConfig = field(default_factory=FinetuneDataConfig)
    head: ClassifierConfig = field(default_factory=ClassifierConfig)
    from_scratch: bool = False
