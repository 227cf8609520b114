"""A pre-training run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar

from stillmotion.config.base import RunConfig, at_least
from stillmotion.data.augment import AUGMENTS
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import MethodConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.options import DataPath, Workers
from stillmotion.registry import suggestion


@dataclass(frozen=True)
class DataConfig(Videos):
    """Which videos, and what is taken of them.

    Attributes:
        clips: ϱ, random clips of each video.
        frames: L, frames of a clip.
        stride: δ, from one frame of a clip to the next.
        size: pixels a side.
        augment: a preset: slowfast, vididi, weak, natural, synthetic or none.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable video.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    path: DataPath = "synthetic"
    clips: int = 2
    frames: int = 8
    stride: int = 8
    size: int = 224
    augment: str = "slowfast"
    workers: Workers = -1
    strict: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "data", 1, "clips", "frames", "stride", "size")
        at_least(self, "data", -1, "workers")
        if self.augment not in AUGMENTS:
            raise StillmotionError(f"there is no augmentation {self.augment!r}{suggestion(self.augment, AUGMENTS)}")


@dataclass(frozen=True)
class Config(RunConfig):
    """Everything that decides what a pre-training run computes."""

    verb: ClassVar[str] = "pretrain"
    data: DataConfig = field(default_factory=DataConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)
