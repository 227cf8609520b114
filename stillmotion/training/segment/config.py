"""Temporal action segmentation configuration: untrimmed data, head."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedConfig
from stillmotion.models.fact import FACTConfig
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.config import FREE_ON_RESUME, EncoderRunConfig, require_plain_training
from stillmotion.utils.option_types import FOLD_ARG, DataPath, NumWorkers
from stillmotion.utils.typed_config import check_ranges

PRECOMPUTED_FEATURES = "precomputed"  # in place of an encoder: features that lie with the data


@dataclass(frozen=True)
class SegmentDataConfig:
    """Which untrimmed videos, and which of their frames.

    Attributes:
        path: Directory in Breakfast's published layout, or synthetic.
        fold: Which of the data set's official splits to use.
        video_dir: Directory of the videos, if not inside --data.
        feature_stride: Frames from one feature to the next. Predictions are repeated for the frames in between.
        background_actions: Actions that count as background and are ignored in Edit and F1.
        seed: Random seed of synthetic videos. --train.seed covers weights and order.
        num_workers: Video decoding processes. -1 uses one per CPU core.
        synthetic: Options of the synthetic untrimmed videos that --data synthetic generates.
    """

    path: DataPath = ""
    fold: Annotated[int, FOLD_ARG] = 1
    video_dir: str | None = None
    feature_stride: int = 1
    background_actions: tuple[str, ...] = ()
    seed: int = 0
    num_workers: NumWorkers = field(default=-1, metadata=FREE_ON_RESUME)
    synthetic: SyntheticUntrimmedConfig = field(default_factory=SyntheticUntrimmedConfig)

    def __post_init__(self) -> None:
        check_ranges(self, "data", feature_stride=(1, None), fold=(1, None), seed=(0, None), num_workers=(-1, None))


@dataclass(frozen=True)
class SegmentConfig(EncoderRunConfig):
    """Complete configuration of a temporal action segmentation run.

    Attributes:
        head: Segmentation head: mstcn or fact, with its options.
        encoder: Encoder whose per-frame features the head is trained on. precomputed uses the features stored with the
            data set.
        untrained: Use the encoder's initial weights, before its training, as a baseline.
    """

    verb: ClassVar[str] = "segment"
    data: SegmentDataConfig = field(default_factory=SegmentDataConfig)
    head: MSTCNConfig | FACTConfig = field(default_factory=MSTCNConfig)
    untrained: bool = False

    def __post_init__(self) -> None:
        require_plain_training(self)
