"""A transfer run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.errors import StillmotionError
from stillmotion.methods.image_to_video import TransferMethodConfig
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig
from stillmotion.training.config import RunConfig, default_to_fp32
from stillmotion.utils.option_types import NumWorkers
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class TransferDataConfig(VideoDataConfig):
    """Which videos, and which pairs of their frames.

    Attributes:
        frame_gap: δ, from one frame to the other, of the video's length.
        image_size: pixels a side.
        crop_scale: least and largest share of a frame that a crop covers.
        flip_prob: the probability that both frames are mirrored.
        pairs_per_video: different pairs of a video, which epochs take in turn; 0 draws new ones in each epoch.
        cache_tokens: tokens are computed once and kept on disk, where pairs and windows of positions are fixed.
        seed: of pairs, crops and fixed windows; --train.seed is of weights and order.
        num_workers: decoding processes; -1 is one per core.
        fail_on_unreadable: stop at the first unreadable video.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    frame_gap: float = 0.15
    image_size: int = 224
    crop_scale: tuple[float, float] = (0.5, 1.0)
    flip_prob: float = 0.5
    pairs_per_video: int = 0
    cache_tokens: bool = True
    seed: int = 0
    num_workers: NumWorkers = -1
    fail_on_unreadable: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "data", image_size=(1, None))
        check_ranges(self, "data", pairs_per_video=(0, None), seed=(0, None))
        check_ranges(self, "data", num_workers=(-1, None))
        if not 0 <= self.flip_prob <= 1:
            raise StillmotionError(f"data.flip_prob is {self.flip_prob}; a probability lies from 0 to 1")
        if not 0 < self.frame_gap <= 1:
            raise StillmotionError(f"data.frame_gap is {self.frame_gap}; it lies above 0 and at most at 1")


@dataclass(frozen=True)
class TransferConfig(RunConfig):
    """Everything that decides what a transfer run computes."""

    verb: ClassVar[str] = "transfer"
    image_model: ImageModelConfig = field(default_factory=ImageModelConfig)
    data: TransferDataConfig = field(default_factory=TransferDataConfig)
    method: TransferMethodConfig = field(default_factory=TransferMethodConfig)

    def __post_init__(self) -> None:
        places = self.method.positions
        if 0 < places.fixed_windows < places.num_views:
            raise StillmotionError(
                f"{places.num_views} windows are taken of {places.fixed_windows} fixed ones; raise --method.positions.fixed-windows"
            )
        object.__setattr__(self, "train", default_to_fp32(self.train))
        if not self.train.is_plain:
            raise StillmotionError(
                "a transfer trains one small layer: in fp32 and in whole batches, neither checkpointed nor compiled"
            )

    @property
    def can_cache_tokens(self) -> bool:
        """Whether the tokens of an epoch come again, so that they can be kept."""
        places = self.method.positions
        return (
            self.data.cache_tokens
            and self.data.pairs_per_video > 0
            and (places.window in ("none", "center") or places.fixed_windows > 0)
        )
