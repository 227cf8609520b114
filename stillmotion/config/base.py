"""What the configurations of all training verbs share."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from stillmotion.errors import StillmotionError
from stillmotion.nn.intake import check_rate
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.options import Device, Workers


@dataclass(frozen=True)
class TrainConfig:
    """How the loop runs.

    Attributes:
        precision: of autocast; fp32 is none, auto is bf16 on CUDA devices that have it and fp32 elsewhere. A run keeps
            the one that it began with.
        accumulate: parts that a batch is computed in, to save memory; each is contrasted within itself.
        checkpointing: each block of a backbone keeps its input alone and is computed again in the backward pass: the
            same gradient with less memory, in about a third more time.
        compile: torch.compile the backbone; not with solvers that differentiate it twice, nor with checkpointing.
        deterministic: ask CUDA for algorithms that give the same bits each time, which may be slower; a CPU has them
            anyway.
        checkpoint_every: steps between two checkpoints.
        keep: epochs after which the weights are kept for good; RUN@epoch=2 names those of the second.
        log_every: steps between two lines of metrics.jsonl.
        loggers: where its numbers go beside metrics.jsonl: tensorboard, wandb, mlflow, or what a package adds.
        evaluate_every: epochs between two evaluations by nearest neighbours and linear probes, which change nothing of
            the training; 0 is none.
        evaluate_data: labelled videos to evaluate on; the training set's own path if left out.
        evaluate_videos: so many of them at most, drawn by --train.seed.
        seed: of weights, clips and augmentation.
        device: auto, cpu, cuda or another torch device.
        threads: of torch on a CPU; 0 leaves it to torch.
    """

    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    accumulate: int = 1
    checkpointing: bool = False
    compile: bool = False
    deterministic: bool = False
    checkpoint_every: int = 500
    keep: tuple[int, ...] = ()
    log_every: int = 10
    loggers: tuple[str, ...] = ("tensorboard",)
    evaluate_every: int = 0
    evaluate_data: str = ""
    evaluate_videos: int = 200
    seed: int = 0
    device: Device = "auto"
    threads: int = 0

    def __post_init__(self) -> None:
        at_least(self, "train", 1, "accumulate", "checkpoint_every", "log_every")
        at_least(self, "train", 0, "threads", "seed", "evaluate_every")
        at_least(self, "train", 4, "evaluate_videos")
        if self.keep and min(self.keep) < 1:
            raise StillmotionError(f"train.keep has epoch {min(self.keep)}; epochs are counted from 1")
        if self.compile and self.checkpointing:
            raise StillmotionError(
                "train.compile and train.checkpointing do not go together: what is compiled is not computed again; "
                "choose one"
            )

    @property
    def plain(self) -> bool:
        """Whether nothing is done to save memory: what trains a small layer alone need not."""
        return self.precision == "fp32" and self.accumulate == 1 and not self.checkpointing and not self.compile


def in_full(train: TrainConfig) -> TrainConfig:
    """The settings of what is too small to gain by another precision than fp32, which "auto" then is."""
    return replace(train, precision="fp32") if train.precision == "auto" else train


def at_least(section: object, where: str, least: int, *names: str) -> None:
    """Raises where a number of a configuration is smaller. where: the section's place, such as "data"."""
    for name in names:
        value = getattr(section, name)
        if value < least:
            raise StillmotionError(f"{where}.{name} is {value}; it must be at least {least}")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a training run computes; a verb adds what it trains, and on which videos.

    Attributes:
        recipe: the named configuration it began as; --list names all.
    """

    verb: ClassVar[str]
    recipe: str = ""
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


@dataclass(frozen=True)
class StartedConfig(RunConfig):
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
class ClipsConfig:
    """The clips of a run that starts from an encoder.

    Attributes:
        frames: of a clip; 0 takes the encoder's own. What stands behind the encoder's @ comes first.
        stride: from one frame of a clip to the next; 0 as above.
        fps: frames a second that stride counts; 0 counts a video's own, None takes the encoder's.
        size: pixels a side of a training clip; 0 as above.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable training video.
    """

    frames: int = 0
    stride: int = 0
    fps: float | None = None
    size: int = 0
    workers: Workers = -1
    strict: bool = False

    def __post_init__(self) -> None:
        at_least(self, "data", 0, "frames", "stride", "size")
        check_rate(self.fps or 0, "data.fps")
        at_least(self, "data", -1, "workers")

    def asked(self) -> dict[str, Any]:
        """What is not left to the encoder, by name."""
        counts = {name: getattr(self, name) for name in ("frames", "stride", "size") if getattr(self, name)}
        return counts if self.fps is None else counts | {"fps": self.fps}
