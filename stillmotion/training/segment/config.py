"""The complete configuration of action localisation."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedConfig
from stillmotion.errors import StillmotionError
from stillmotion.models.fact import FACTConfig
from stillmotion.models.mstcn import MSTCNConfig
from stillmotion.training.config import EncoderRunConfig, default_to_fp32
from stillmotion.utils.option_types import FOLD_ARG, DataPath, NumWorkers
from stillmotion.utils.typed_config import check_ranges


PRECOMPUTED_FEATURES = "precomputed"  # in place of an encoder: features that lie with the data


@dataclass(frozen=True)
class SegmentDataConfig:
    """Which untrimmed videos, and which of their frames.

    Attributes:
        path: a folder laid out as Breakfast is published, or "synthetic".
        fold: which of the set's splits, by its bundles.
        video_dir: where the videos lie, if not below the folder.
        feature_stride: frames from one feature to the next; predictions are repeated in between.
        background_actions: actions whose segments are left out of Edit and F1.
        seed: of drawn videos; --train.seed is of weights and order.
        num_workers: decoding processes; -1 is one per core.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    path: DataPath = ""
    fold: Annotated[int, FOLD_ARG] = 1
    video_dir: str | None = None
    feature_stride: int = 1
    background_actions: tuple[str, ...] = ()
    seed: int = 0
    num_workers: NumWorkers = -1
    synthetic: SyntheticUntrimmedConfig = field(default_factory=SyntheticUntrimmedConfig)

    def __post_init__(self) -> None:
        check_ranges(self, "data", feature_stride=(1, None), fold=(1, None))
        check_ranges(self, "data", seed=(0, None))
        check_ranges(self, "data", num_workers=(-1, None))


@dataclass(frozen=True)
class SegmentConfig(EncoderRunConfig):
    """Everything that decides what a head for action localisation learns.

    Attributes:
        encoder: whose features of frames the head is given; "precomputed" takes those that lie with the data.
        untrained: the network that the encoder's run started from, in place of it.
        head: what is trained.
    """

    verb: ClassVar[str] = "segment"
    data: SegmentDataConfig = field(default_factory=SegmentDataConfig)
    head: MSTCNConfig | FACTConfig = field(default_factory=MSTCNConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "train", default_to_fp32(self.train))
        if not self.train.is_plain:
            raise StillmotionError(
                "a head of action localisation trains in fp32 and in whole batches, neither checkpointed nor compiled"
            )
