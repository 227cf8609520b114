"""A detection run's complete configuration."""

from dataclasses import dataclass, field

from stillmotion.config import TrainConfig
from stillmotion.data.acting import ActingConfig
from stillmotion.errors import StillmotionError
from stillmotion.nn.detector import HeadConfig
from stillmotion.optim.optimizers import OptimConfig


@dataclass(frozen=True)
class ActionsConfig:
    """Which key frames, what is taken round them, and which boxes.

    Attributes:
        path: a folder with AVA's videos or frames, or "acting".
        annotations: the folder of AVA's lists, if they are not below the videos' folder.
        start: the second at which videos begin; None is 0 for whole films, and 900 for shorter ones.
        frames: of a clip; 0 takes the encoder's own. What stands behind the encoder's @ comes first.
        stride: from one frame of a clip to the next; 0 as above.
        size: pixels a side of a training clip; 0 as above.
        short_side: least and largest shorter edge of the frames that training clips are cut from, in pixels; 0 is from
            8 to 10 sevenths of the size.
        test_size: shorter edge of the whole frames that are tested; 0 takes 8 sevenths of the size.
        flip: how often training clips are mirrored.
        score: least score of a predicted person box.
        overlap: least intersection over union by which a predicted box has an annotated one's actions in training.
        workers: decoding processes; -1 is one per core.
        strict: stop at the first unreadable training video.
        acting: the drawn videos that the path "acting" stands for.
    """

    path: str = ""
    annotations: str | None = None
    start: float | None = None
    frames: int = 0
    stride: int = 0
    size: int = 0
    short_side: tuple[int, int] = (0, 0)
    test_size: int = 0
    flip: float = 0.5
    score: float = 0.9
    overlap: float = 0.5
    workers: int = -1
    strict: bool = False
    acting: ActingConfig = field(default_factory=ActingConfig)

    def __post_init__(self) -> None:
        for name in ("flip", "score", "overlap"):
            if not 0 <= getattr(self, name) <= 1:
                raise StillmotionError(f"data.{name} is {getattr(self, name)}; it lies between 0 and 1")


@dataclass(frozen=True)
class DetectConfig:
    """Everything that decides what a detection run computes.

    Attributes:
        recipe: the named configuration it began as; --list names all.
        encoder: where it starts from: a run folder, a recipe's name (its network, untrained), a folder that
            transformers wrote, or i3d:<file>; options such as @frames=16,size=112 behind it.
        untrained: start from that encoder's network with fresh weights, drawn by --train.seed.
    """

    recipe: str = ""
    encoder: str = ""
    untrained: bool = False
    data: ActionsConfig = field(default_factory=ActionsConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
