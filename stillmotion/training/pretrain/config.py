"""A pre-training run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.data.transforms.augment import AUGMENTATIONS
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import MethodConfig
from stillmotion.models.input_config import check_fps
from stillmotion.optim.bilevel import SECOND_ORDER_SOLVERS, SolverConfig, SolverName
from stillmotion.training.config import RunConfig
from stillmotion.utils.option_types import DataPath, NumWorkers
from stillmotion.utils.registry import did_you_mean
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class PretrainDataConfig(VideoDataConfig):
    """Which videos, and what is taken of them.

    Attributes:
        clips_per_video: ϱ, random clips of each video.
        num_frames: L, frames of a clip.
        frame_stride: δ, from one frame of a clip to the next; 0 spreads them over the whole video.
        fps: frames a second that stride counts, so that clips of all videos last as long; 0 counts a video's own.
        image_size: pixels a side.
        cached_frames: of tokens_cnn: evenly spaced frames of each video, whose tokens are computed once; clips are drawn from
            them.
        token_crop: of tokens_cnn: rows and columns of the kept tokens that a clip shows, at a random place, of all.
        augment: a preset: slowfast, vididi, weak, light, synthetic or none.
        augment_on: where colours, blur and scale are made: by the workers, or of whole batches on the device, where crops
            then travel as uint8, a quarter of the bytes; auto is the device where it is CUDA.
        shuffle_buffer: videos among which the next is chosen while shards are read one after the other, in an order of
            each epoch's own; 0 shuffles all videos at once.
        num_workers: decoding processes; -1 is one per core.
        fail_on_unreadable: stop at the first unreadable video.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    path: DataPath = "synthetic"
    clips_per_video: int = 2
    num_frames: int = 8
    frame_stride: int = 8
    fps: float = 0.0
    image_size: int = 224
    cached_frames: int = 0
    token_crop: float = 1.0
    augment: str = "slowfast"
    augment_on: Literal["auto", "workers", "device"] = "auto"
    shuffle_buffer: int = 0
    num_workers: NumWorkers = -1
    fail_on_unreadable: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "data", clips_per_video=(1, None), num_frames=(1, None), image_size=(1, None))
        check_ranges(self, "data", frame_stride=(0, None), cached_frames=(0, None), shuffle_buffer=(0, None))
        check_fps(self.fps, "data.fps")
        check_ranges(self, "data", num_workers=(-1, None))
        if not 0 < self.token_crop <= 1:
            raise StillmotionError(f"data.token_crop is {self.token_crop}; it lies above 0 and at most at 1")
        if self.augment not in AUGMENTATIONS:
            raise StillmotionError(
                f"there is no augmentation {self.augment!r}{did_you_mean(self.augment, AUGMENTATIONS)}"
            )


@dataclass(frozen=True)
class PretrainConfig(RunConfig):
    """Everything that decides what a pre-training run computes."""

    verb: ClassVar[str] = "pretrain"
    data: PretrainDataConfig = field(default_factory=PretrainDataConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)

    def __post_init__(self) -> None:
        data, needed = self.data, self.data.num_frames + self.method.views.extra_frames
        if self.method.model.uses_tokens and (data.cached_frames < needed or data.frame_stride):
            raise StillmotionError(
                f"data.cached_frames is {data.cached_frames} and data.frame_stride {data.frame_stride}; tokens_cnn draws clips of {needed} frames "
                f"from kept ones, which are spread over the video: give --data.cached-frames {2 * data.num_frames} --data.frame-stride 0"
            )
        if data.cached_frames and not self.method.model.uses_tokens:
            raise StillmotionError(
                f"data.cached_frames is {data.cached_frames}, but {self.method.model.backbone} is shown no tokens: leave it out, or "
                "choose --method.model.backbone tokens_cnn"
            )
        if self.train.compile and self.solver.name in SECOND_ORDER_SOLVERS:
            works = ", ".join(how for how in get_args(SolverName) if how not in SECOND_ORDER_SOLVERS)
            raise StillmotionError(
                f"solver.name is {self.solver.name}, which differentiates the backbone twice, and a compiled one can be "
                f"differentiated once; leave --train.compile out, or choose {works}"
            )
        if data.augment_on == "device" and self.method.model.uses_tokens:
            raise StillmotionError("data.augment_on is 'device', but tokens_cnn is shown no frames; leave it out")
