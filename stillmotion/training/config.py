"""What the configurations of all training verbs share."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import check_fps
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.utils.option_types import DeviceName, NumWorkers
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class TrainConfig:
    """How the loop runs.

    Attributes:
        precision: of autocast; fp32 is none, auto is bf16 on CUDA devices that have it and fp32 elsewhere. A run keeps
            the one that it began with.
        grad_accum_steps: parts that a batch is computed in, to save memory; each is contrasted within itself.
        activation_checkpointing: each block of a backbone keeps its input alone and is computed again in the backward pass: the
            same gradient with less memory, in about a third more time.
        compile: torch.compile the backbone; not with solvers that differentiate it twice, nor with checkpointing.
        deterministic: ask CUDA for algorithms that give the same bits each time, which may be slower; a CPU has them
            anyway.
        checkpoint_every_steps: steps between two checkpoints.
        save_epochs: epochs after which the weights are kept for good; RUN@epoch=2 names those of the second.
        log_every_steps: steps between two lines of metrics.jsonl.
        loggers: where its numbers go beside metrics.jsonl: tensorboard, wandb, mlflow, or what a package adds.
        eval_every_epochs: epochs between two evaluations by nearest neighbours and linear probes, which change nothing of
            the training; 0 is none.
        eval_data: labelled videos to evaluate on; the training set's own path if left out.
        eval_num_videos: so many of them at most, drawn by --train.seed.
        seed: of weights, clips and augmentation.
        device: auto, cpu, cuda or another torch device.
        num_threads: of torch on a CPU; 0 leaves it to torch.
    """

    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    grad_accum_steps: int = 1
    activation_checkpointing: bool = False
    compile: bool = False
    deterministic: bool = False
    checkpoint_every_steps: int = 500
    save_epochs: tuple[int, ...] = ()
    log_every_steps: int = 10
    loggers: tuple[str, ...] = ("tensorboard",)
    eval_every_epochs: int = 0
    eval_data: str = ""
    eval_num_videos: int = 200
    seed: int = 0
    device: DeviceName = "auto"
    num_threads: int = 0

    def __post_init__(self) -> None:
        check_ranges(self, "train", grad_accum_steps=(1, None), checkpoint_every_steps=(1, None), log_every_steps=(1, None))
        check_ranges(self, "train", num_threads=(0, None), seed=(0, None), eval_every_epochs=(0, None))
        check_ranges(self, "train", eval_num_videos=(4, None))
        if self.save_epochs and min(self.save_epochs) < 1:
            raise StillmotionError(f"train.save_epochs has epoch {min(self.save_epochs)}; epochs are counted from 1")
        if self.compile and self.activation_checkpointing:
            raise StillmotionError(
                "train.compile and train.activation_checkpointing do not go together: what is compiled is not computed again; "
                "choose one"
            )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is done to save memory: what trains a small layer alone need not."""
        return (
            self.precision == "fp32"
            and self.grad_accum_steps == 1
            and not self.activation_checkpointing
            and not self.compile
        )


def default_to_fp32(train: TrainConfig) -> TrainConfig:
    """The settings of what is too small to gain by another precision than fp32, which "auto" then is."""
    return replace(train, precision="fp32") if train.precision == "auto" else train


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a training run computes; a verb adds what it trains, and on which videos.

    Attributes:
        recipe: the named configuration it began as; --list-recipes names all.
    """

    verb: ClassVar[str]
    recipe: str = ""
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class EncoderRunConfig(RunConfig):
    """A run that starts from an encoder.

    Attributes:
        encoder: where it starts from: a run folder, a recipe's name (its network, untrained), a folder that
            transformers wrote or its name on the Hugging Face hub, an original checkpoint (dino:<file>, …) or
            i3d:<file>; options such as @frames=16,size=112 behind it.
        untrained: start from that encoder's network with fresh weights, drawn by --train.seed.
    """

    encoder: str = ""
    untrained: bool = False


@dataclass(frozen=True)
class ClipConfig:
    """The clips of a run that starts from an encoder.

    Attributes:
        num_frames: of a clip; 0 takes the encoder's own. What stands behind the encoder's @ comes first.
        frame_stride: from one frame of a clip to the next; 0 as above.
        fps: frames a second that stride counts; 0 counts a video's own, None takes the encoder's.
        image_size: pixels a side of a training clip; 0 as above.
        num_workers: decoding processes; -1 is one per core.
        fail_on_unreadable: stop at the first unreadable training video.
    """

    num_frames: int = 0
    frame_stride: int = 0
    fps: float | None = None
    image_size: int = 0
    num_workers: NumWorkers = -1
    fail_on_unreadable: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, "data", num_frames=(0, None), frame_stride=(0, None), image_size=(0, None))
        check_fps(self.fps or 0, "data.fps")
        check_ranges(self, "data", num_workers=(-1, None))

    def explicit_values(self) -> dict[str, Any]:
        """What is not left to the encoder, by name."""
        counts = {
            name: value
            for name, value in {
                "num_frames": self.num_frames,
                "stride": self.frame_stride,
                "image_size": self.image_size,
            }.items()
            if value
        }
        return counts if self.fps is None else counts | {"fps": self.fps}
