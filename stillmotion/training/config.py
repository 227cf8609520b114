"""Configuration that all training verbs share: optimization, the training loop, encoders and clips."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import check_fps
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.utils.option_types import DeviceName, NumWorkers
from stillmotion.utils.typed_config import check_ranges

# Metadata of fields that may differ when a run is resumed: they do not change what is trained.
FREE_ON_RESUME = {"resume": "free"}
_MAX_THREADS = 1024  # with millions of threads, torch crashes
_MAX_SEED = 2**63 - 1  # of torch's generators


@dataclass(frozen=True)
class TrainConfig:
    """Options of the training loop.

    Attributes:
        precision: Autocast precision. auto: bf16 on CUDA devices that support it, fp32 elsewhere. A resumed run keeps
            its precision.
        grad_accum_steps: Micro-batches per optimizer step, to save memory. Contrastive losses see one micro-batch at a
            time.
        activation_checkpointing: Recompute backbone blocks in the backward pass: less memory, same gradients, about a
            third more time.
        compile: Compile the backbone with torch.compile. Not available with second-order solvers or activation
            checkpointing.
        deterministic: Use deterministic CUDA algorithms, which may be slower. CPU runs are always deterministic.
        checkpoint_every_steps: Steps between two checkpoints.
        save_epochs: Epochs whose weights are saved permanently, e.g. 1 5 10. RUN@epoch=5 loads those of epoch 5.
        log_every_steps: Steps between two lines in metrics.jsonl.
        loggers: Where metrics are logged besides metrics.jsonl: tensorboard, wandb, mlflow, or a plugin's logger.
        eval_every_epochs: Epochs between two online evaluations (k-NN and linear probe). They do not affect training. 0
            disables them.
        eval_data: Labeled videos for online evaluation. Default: the training videos.
        eval_num_videos: Maximum number of videos in an online evaluation, sampled with --train.seed.
        seed: Random seed for weights, clip sampling and augmentation.
        device: Torch device: auto, cpu, cuda or cuda:N. auto uses CUDA if available.
        num_threads: CPU threads for torch. 0 keeps torch's default.
    """

    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    grad_accum_steps: int = 1
    activation_checkpointing: bool = False
    compile: bool = False
    deterministic: bool = field(default=False, metadata=FREE_ON_RESUME)
    checkpoint_every_steps: int = field(default=500, metadata=FREE_ON_RESUME)
    save_epochs: tuple[int, ...] = field(default=(), metadata=FREE_ON_RESUME)
    log_every_steps: int = field(default=10, metadata=FREE_ON_RESUME)
    loggers: tuple[str, ...] = field(default=("tensorboard",), metadata=FREE_ON_RESUME)
    eval_every_epochs: int = field(default=0, metadata=FREE_ON_RESUME)
    eval_data: str = field(default="", metadata=FREE_ON_RESUME)
    eval_num_videos: int = field(default=200, metadata=FREE_ON_RESUME)
    seed: int = 0
    device: DeviceName = "auto"
    num_threads: int = field(default=0, metadata=FREE_ON_RESUME)

    def __post_init__(self) -> None:
        at_least_one, at_least_zero = (1, None), (0, None)
        check_ranges(
            self,
            "train",
            grad_accum_steps=at_least_one,
            checkpoint_every_steps=at_least_one,
            log_every_steps=at_least_one,
            num_threads=(0, _MAX_THREADS),
            seed=(0, _MAX_SEED),
            eval_every_epochs=at_least_zero,
            eval_num_videos=(4, None),
        )
        if self.save_epochs and min(self.save_epochs) < 1:
            raise StillmotionError(
                f"--train.save-epochs contains epoch {min(self.save_epochs)}; epochs are counted from 1."
            )
        if self.compile and self.activation_checkpointing:
            raise StillmotionError(
                "--train.compile and --train.activation-checkpointing cannot be combined. Choose one of them."
            )


def require_plain_training(config: "RunConfig", *, any_precision: bool = False) -> None:
    """Raise if a verb that trains a small module is asked for options that save memory; precision auto becomes fp32.

    Args:
        config: The configuration of a run, in its `__post_init__`.
        any_precision: Allow bf16 and fp16.
    """
    train = config.train
    if train.precision == "auto":
        train = replace(train, precision="fp32")
        object.__setattr__(config, "train", train)
    is_refused = train.precision != "fp32" and not any_precision
    if is_refused or train.grad_accum_steps > 1 or train.activation_checkpointing or train.compile:
        where, precision = ("", "") if any_precision else (" in fp32", "--train.precision, ")
        raise StillmotionError(
            f"{config.verb} trains a small module{where}. Remove {precision}--train.grad-accum-steps, "
            "--train.activation-checkpointing and --train.compile."
        )


@dataclass(frozen=True)
class RunConfig:
    """Complete configuration of a training run; each verb adds its data and what it trains.

    Attributes:
        recipe: Recipe that this configuration started from. --list-recipes prints all recipes.
        optim: Optimizer and learning-rate schedule.
        train: Options of the training loop.
    """

    verb: ClassVar[str]
    recipe: str = field(default="", metadata=FREE_ON_RESUME)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class EncoderRunConfig(RunConfig):
    """Configuration of a run that starts from an encoder.

    Attributes:
        encoder: Encoder to start from, as a spec string: a run directory, a recipe name (random weights), a Hugging
            Face model or its local directory, or a checkpoint such as dino:FILE or i3d:FILE. Append options as
            @frames=16,size=112.
    """

    encoder: str = ""


@dataclass(frozen=True)
class ClipConfig:
    """Clips of a run that starts from an encoder.

    Attributes:
        num_frames: Frames per clip. 0 uses the encoder's value. Options in the encoder spec take precedence.
        frame_stride: Frames from one sampled frame to the next. 0 uses the encoder's value.
        fps: Frame rate at which frame_stride counts. 0 uses each video's own rate. Default: the encoder's value.
        image_size: Height and width of training clips in pixels. 0 uses the encoder's value.
        num_workers: Video decoding processes. -1 uses one per CPU core.
        fail_on_unreadable: Stop at the first unreadable training video instead of skipping it.
    """

    num_frames: int = 0
    frame_stride: int = 0
    fps: float | None = None
    image_size: int = 0
    num_workers: NumWorkers = field(default=-1, metadata=FREE_ON_RESUME)
    fail_on_unreadable: bool = False

    def __post_init__(self) -> None:
        check_ranges(
            self,
            "data",
            num_frames=(0, None),
            frame_stride=(0, None),
            image_size=(0, None),
            num_workers=(-1, None),
        )
        check_fps(self.fps or 0, "data.fps")

    def explicit_values(self) -> dict[str, Any]:
        """Return the values that are not left to the encoder, as keywords of `Encoder.with_input`."""
        values = {"num_frames": self.num_frames, "stride": self.frame_stride, "image_size": self.image_size}
        values = {name: value for name, value in values.items() if value}
        return values if self.fps is None else values | {"fps": self.fps}
