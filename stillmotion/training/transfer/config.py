"""Image-to-video transfer configuration: data, method."""

from dataclasses import dataclass, field
from typing import ClassVar

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.errors import StillmotionError
from stillmotion.methods.image_to_video import TransferMethodConfig
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig
from stillmotion.training.config import FREE_ON_RESUME, RunConfig, require_plain_training
from stillmotion.utils.option_types import NumWorkers
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class TransferDataConfig(VideoDataConfig):
    """Training videos and the pairs of frames that are sampled from them.

    Attributes:
        frame_gap: Distance between the two frames of a pair, as a fraction of the video's length (δ in the paper).
        image_size: Height and width of frames in pixels.
        crop_scale: Minimum and maximum crop area, as fractions of the frame.
        squash: Resize frames to a square before the crop, whatever their shape, and crops bicubically, as the authors
            do. Off: crops have the proportions of the video.
        flip_prob: Probability of a horizontal flip, applied to both frames.
        pairs_per_video: Number of fixed frame pairs per video; epochs cycle through them. 0 samples a new pair in each
            epoch.
        min_pairs_per_epoch: Take several pairs of each video in an epoch until it has this many, where videos are few.
            0 takes one pair of each.
        held_out_fraction: Fraction of the videos that are not trained on but used to check the run without labels: it
            stops early and keeps the frozen model if that is better. At least 2 of 6 or more videos, at most 16.
        cache_tokens: Compute tokens once and cache them on disk, where pairs and position windows are fixed.
        seed: Random seed for pairs, crops and fixed windows. --train.seed covers weights and batch order.
        num_workers: Video decoding processes. -1 uses one per CPU core.
        fail_on_unreadable: Stop at the first unreadable video instead of skipping it.
        synthetic: Options of the synthetic videos that --data synthetic generates.
    """

    frame_gap: float = 0.15
    image_size: int = 224
    crop_scale: tuple[float, float] = (0.5, 1.0)
    squash: bool = False
    flip_prob: float = 0.5
    pairs_per_video: int = 0
    min_pairs_per_epoch: int = 0
    held_out_fraction: float = 0.0
    cache_tokens: bool = True
    seed: int = 0
    num_workers: NumWorkers = field(default=-1, metadata=FREE_ON_RESUME)
    fail_on_unreadable: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(
            self,
            "data",
            image_size=(1, None),
            pairs_per_video=(0, None),
            min_pairs_per_epoch=(0, None),
            held_out_fraction=(0, 0.5),
            seed=(0, None),
            num_workers=(-1, None),
            flip_prob=(0, 1),
        )
        if not 0 < self.frame_gap <= 1:
            raise StillmotionError(f"data.frame_gap is {self.frame_gap}; it must be above 0 and at most 1")


@dataclass(frozen=True)
class TransferConfig(RunConfig):
    """Complete configuration of an image-to-video transfer run.

    Attributes:
        image_model: The frozen image transformer.
        data: Training videos and frame pairs.
        method: Projection and losses.
    """

    verb: ClassVar[str] = "transfer"
    image_model: ImageModelConfig = field(default_factory=ImageModelConfig)
    data: TransferDataConfig = field(default_factory=TransferDataConfig)
    method: TransferMethodConfig = field(default_factory=TransferMethodConfig)

    def __post_init__(self) -> None:
        positions = self.method.positions
        if 0 < positions.fixed_windows < positions.num_views:
            raise StillmotionError(
                f"A frame needs {positions.num_views} position windows, but only {positions.fixed_windows} are fixed. "
                "Increase --method.positions.fixed-windows."
            )
        require_plain_training(self, any_precision=True)

    @property
    def can_cache_tokens(self) -> bool:
        """Whether tokens repeat from epoch to epoch, so that they can be cached."""
        positions = self.method.positions
        return (
            self.data.cache_tokens
            and self.data.pairs_per_video > 0
            and (positions.window in ("none", "center") or positions.fixed_windows > 0)
        )
