"""A detection run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar

from stillmotion.config.base import ClipsConfig, StartedConfig, at_least
from stillmotion.data.acting import ActingConfig
from stillmotion.errors import StillmotionError
from stillmotion.nn.detector import HeadConfig
from stillmotion.options import Annotations, DataPath


@dataclass(frozen=True)
class ActionsConfig(ClipsConfig):
    """Which key frames, what is taken round them, and which boxes.

    Attributes:
        path: a folder with AVA's videos or frames, or "acting".
        annotations: the folder of AVA's lists, if they are not below the videos' folder.
        start: the second at which videos begin; None is 0 for whole films, and 900 for shorter ones.
        short_side: least and largest shorter edge of the frames that training clips are cut from, in pixels; 0 is from
            8 to 10 sevenths of the size.
        test_size: shorter edge of the whole frames that are tested; 0 takes 8 sevenths of the size.
        flip: how often training clips are mirrored.
        score: least score of a predicted person box.
        overlap: least intersection over union by which a predicted box has an annotated one's actions in training.
        acting: the drawn videos that the path "acting" stands for.
    """

    path: DataPath = ""
    annotations: Annotations = None
    start: float | None = None
    short_side: tuple[int, int] = (0, 0)
    test_size: int = 0
    flip: float = 0.5
    score: float = 0.9
    overlap: float = 0.5
    acting: ActingConfig = field(default_factory=ActingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, "data", 0, "test_size")
        for name in ("flip", "score", "overlap"):
            if not 0 <= getattr(self, name) <= 1:
                raise StillmotionError(f"data.{name} is {getattr(self, name)}; it lies between 0 and 1")


@dataclass(frozen=True)
class DetectConfig(StartedConfig):
    """Everything that decides what a detection run computes."""

    verb: ClassVar[str] = "detect"
    data: ActionsConfig = field(default_factory=ActionsConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
