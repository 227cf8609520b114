"""The complete configuration of action localisation."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from stillmotion.config.base import StartedConfig, at_least, in_full
from stillmotion.data.untrimmed import UntrimmedConfig
from stillmotion.errors import StillmotionError
from stillmotion.nn.fact import FACTConfig
from stillmotion.nn.mstcn import MSTCNConfig
from stillmotion.options import FOLD, DataPath, Workers


@dataclass(frozen=True)
class FramesConfig:
    """Which untrimmed videos, and which of their frames.

    Attributes:
        path: a folder laid out as Breakfast is published, or "synthetic".
        fold: which of the set's splits, by its bundles.
        videos: where the videos lie, if not below the folder.
        hop: frames from one feature to the next; predictions are repeated in between.
        background: actions whose segments are left out of Edit and F1.
        seed: of drawn videos; --train.seed is of weights and order.
        workers: decoding processes; -1 is one per core.
        untrimmed: the drawn videos that the path "synthetic" stands for.
    """

    path: DataPath = ""
    fold: Annotated[int, FOLD] = 1
    videos: str | None = None
    hop: int = 1
    background: tuple[str, ...] = ()
    seed: int = 0
    workers: Workers = -1
    untrimmed: UntrimmedConfig = field(default_factory=UntrimmedConfig)

    def __post_init__(self) -> None:
        at_least(self, "data", 1, "hop", "fold")
        at_least(self, "data", 0, "seed")
        at_least(self, "data", -1, "workers")


@dataclass(frozen=True)
class SegmentConfig(StartedConfig):
    """Everything that decides what a head for action localisation learns.

    Attributes:
        encoder: whose features of frames the head is given; "features" takes those that lie with the data.
        untrained: the network that the encoder's run started from, in place of it.
        head: what is trained.
    """

    verb: ClassVar[str] = "segment"
    data: FramesConfig = field(default_factory=FramesConfig)
    head: MSTCNConfig | FACTConfig = field(default_factory=MSTCNConfig)

    def __post_init__(self) -> None:
        object.__setattr__(self, "train", in_full(self.train))
        if not self.train.plain:
            raise StillmotionError(
                "a head of action localisation trains in fp32 and in whole batches, neither checkpointed nor compiled"
            )
