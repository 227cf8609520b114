"""A pre-training run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from stillmotion.config.base import RunConfig, at_least
from stillmotion.data.augment import AUGMENTS
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.videos import Videos
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import MethodConfig
from stillmotion.nn.intake import check_rate
from stillmotion.optim.bilevel import TWICE, How, SolverConfig
from stillmotion.options import DataPath, Workers
from stillmotion.registry import suggestion


@dataclass(frozen=True)
class DataConfig(Videos):
    """Which videos, and what is taken of them.

    Attributes:
        clips: ϱ, random clips of each video.
        frames: L, frames of a clip.
        stride: δ, from one frame of a clip to the next; 0 spreads them over the whole video.
        fps: frames a second that stride counts, so that clips of all videos last as long; 0 counts a video's own.
        size: pixels a side.
        kept: of tokens_cnn: evenly spaced frames of each video, whose tokens are computed once; clips are drawn from
            them.
        share: of tokens_cnn: rows and columns of the kept tokens that a clip shows, at a random place, of all.
        augment: a preset: slowfast, vididi, weak, natural, synthetic or none.
        finish: where colours, blur and scale are made: by the workers, or of whole batches on the device, where crops
            then travel as uint8, a quarter of the bytes; auto is the device where it is CUDA.
        shuffle_buffer: videos among which the next is chosen while shards are read one after the other, in an order of
            each epoch's own; 0 shuffles all videos at once.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable video.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    path: DataPath = "synthetic"
    clips: int = 2
    frames: int = 8
    stride: int = 8
    fps: float = 0.0
    size: int = 224
    kept: int = 0
    share: float = 1.0
    augment: str = "slowfast"
    finish: Literal["auto", "workers", "device"] = "auto"
    shuffle_buffer: int = 0
    workers: Workers = -1
    strict: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "data", 1, "clips", "frames", "size")
        at_least(self, "data", 0, "stride", "kept", "shuffle_buffer")
        check_rate(self.fps, "data.fps")
        at_least(self, "data", -1, "workers")
        if not 0 < self.share <= 1:
            raise StillmotionError(f"data.share is {self.share}; it lies above 0 and at most at 1")
        if self.augment not in AUGMENTS:
            raise StillmotionError(f"there is no augmentation {self.augment!r}{suggestion(self.augment, AUGMENTS)}")


@dataclass(frozen=True)
class Config(RunConfig):
    """Everything that decides what a pre-training run computes."""

    verb: ClassVar[str] = "pretrain"
    data: DataConfig = field(default_factory=DataConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)

    def __post_init__(self) -> None:
        data, needed = self.data, self.data.frames + self.method.views.extra
        if self.method.model.of_tokens and (data.kept < needed or data.stride):
            raise StillmotionError(
                f"data.kept is {data.kept} and data.stride {data.stride}; tokens_cnn draws clips of {needed} frames "
                f"from kept ones, which are spread over the video: give --data.kept {2 * data.frames} --data.stride 0"
            )
        if data.kept and not self.method.model.of_tokens:
            raise StillmotionError(
                f"data.kept is {data.kept}, but {self.method.model.backbone} is shown no tokens: leave it out, or "
                "choose --method.model.backbone tokens_cnn"
            )
        if self.train.compile and self.solver.how in TWICE:
            works = ", ".join(how for how in get_args(How) if how not in TWICE)
            raise StillmotionError(
                f"solver.how is {self.solver.how}, which differentiates the backbone twice, and a compiled one can be "
                f"differentiated once; leave --train.compile out, or choose {works}"
            )
        if data.finish == "device" and self.method.model.of_tokens:
            raise StillmotionError("data.finish is 'device', but tokens_cnn is shown no frames; leave it out")
