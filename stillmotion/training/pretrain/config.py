"""Pretraining configuration: data, method, solver."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.data.transforms.augment import AUGMENTATIONS
from stillmotion.errors import StillmotionError
from stillmotion.methods.method import MethodConfig
from stillmotion.models.input_config import check_fps
from stillmotion.optim.bilevel import SECOND_ORDER_SOLVERS, SolverConfig, SolverName
from stillmotion.training.config import FREE_ON_RESUME, RunConfig
from stillmotion.utils.option_types import DataPath, NumWorkers
from stillmotion.utils.registry import did_you_mean
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class PretrainDataConfig(VideoDataConfig):
    """Training videos and the clips that are sampled from them.

    Attributes:
        clips_per_video: Random clips per video in each batch (ϱ in the papers).
        num_frames: Frames per clip.
        frame_stride: Frames from one sampled frame to the next. 0 spreads the clip over the whole video.
        fps: Frame rate at which frame_stride counts, so that clips of all videos have the same duration. 0 uses each
            video's own rate.
        image_size: Height and width of clips in pixels.
        cached_frames: Only for tokens_cnn: evenly spaced frames per video whose image-model tokens are cached. Clips
            are sampled from them.
        token_crop: Only for tokens_cnn: side length of the random token crop, as a fraction of the token grid.
        token_shift: Only for tokens_cnn: largest horizontal shift of a clip's token grid, in tokens.
        token_window: Only for tokens_cnn: shortest part of a video that a clip spans, as a fraction. The number of
            frames is fixed, so shorter windows are slower: 0.56 gives speeds from 0.75 to 1.33.
        augment: Augmentation preset: slowfast, vididi, weak, light, synthetic or none.
        augment_on: Where color, blur and normalization run: workers (CPU), device (whole batches; clips are sent as
            uint8), or auto (device if CUDA).
        shuffle_buffer: Size of the shuffle buffer when reading shards sequentially. 0 shuffles all videos globally.
        num_workers: Video decoding processes. -1 uses one per CPU core.
        fail_on_unreadable: Stop at the first unreadable video instead of skipping it.
        synthetic: Options of the synthetic videos that --data synthetic generates.
    """

    path: DataPath = "synthetic"
    clips_per_video: int = 2
    num_frames: int = 8
    frame_stride: int = 8
    fps: float = 0.0
    image_size: int = 224
    cached_frames: int = 0
    token_crop: float = 1.0
    token_shift: int = 0
    token_window: float = 0.875
    augment: str = "slowfast"
    augment_on: Literal["auto", "workers", "device"] = "auto"
    shuffle_buffer: int = 0
    num_workers: NumWorkers = field(default=-1, metadata=FREE_ON_RESUME)
    fail_on_unreadable: bool = False
    synthetic: SyntheticConfig = field(default_factory=SyntheticConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(
            self,
            "data",
            clips_per_video=(1, None),
            num_frames=(1, None),
            image_size=(1, None),
            frame_stride=(0, None),
            cached_frames=(0, None),
            token_shift=(0, None),
            shuffle_buffer=(0, None),
            num_workers=(-1, None),
        )
        check_fps(self.fps, "data.fps")
        for name in ("token_crop", "token_window"):
            if not 0 < getattr(self, name) <= 1:
                raise StillmotionError(f"data.{name} is {getattr(self, name)}; it must be above 0 and at most 1")
        if self.augment not in AUGMENTATIONS:
            hint = did_you_mean(self.augment, AUGMENTATIONS)
            raise StillmotionError(f"there is no augmentation {self.augment!r}{hint}")


@dataclass(frozen=True)
class PretrainConfig(RunConfig):
    """Complete configuration of a pretraining run.

    Attributes:
        data: Training videos and clips.
        method: Self-supervised method.
        solver: Solver of the bi-level optimization.
    """

    verb: ClassVar[str] = "pretrain"
    data: PretrainDataConfig = field(default_factory=PretrainDataConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    solver: SolverConfig = field(default_factory=SolverConfig)

    def __post_init__(self) -> None:
        data, needed = self.data, self.data.num_frames + self.method.views.extra_frames
        if self.method.model.uses_tokens and (data.cached_frames < needed or data.frame_stride):
            raise StillmotionError(
                f"data.cached_frames is {data.cached_frames} and data.frame_stride is {data.frame_stride}, but "
                f"tokens_cnn samples clips of {needed} frames from cached frames that are spread over the video. Set "
                f"--data.cached-frames {2 * data.num_frames} --data.frame-stride 0."
            )
        if data.cached_frames and not self.method.model.uses_tokens:
            raise StillmotionError(
                f"data.cached_frames is {data.cached_frames}, but {self.method.model.backbone} does not use tokens. "
                "Remove --data.cached-frames, or choose --method.model.backbone tokens_cnn."
            )
        if self.train.compile and self.solver.name in SECOND_ORDER_SOLVERS:
            first_order = ", ".join(name for name in get_args(SolverName) if name not in SECOND_ORDER_SOLVERS)
            raise StillmotionError(
                f"Solver {self.solver.name} differentiates the backbone twice, which a compiled backbone does not "
                f"support. Remove --train.compile, or set --solver.name to one of {first_order}."
            )
        if data.augment_on == "device" and self.method.model.uses_tokens:
            raise StillmotionError(
                "data.augment_on is 'device', but tokens_cnn uses no frames. Remove --data.augment-on."
            )
