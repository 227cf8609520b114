"""A detection run's complete configuration."""

from dataclasses import dataclass, field
from typing import ClassVar

from stillmotion.data.synthetic.ava import SyntheticAVAConfig
from stillmotion.errors import StillmotionError
from stillmotion.models.detector import RoIHeadConfig
from stillmotion.training.config import ClipConfig, EncoderRunConfig
from stillmotion.utils.option_types import AnnotationsPath, DataPath
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class DetectDataConfig(ClipConfig):
    """Which key frames, what is taken round them, and which boxes.

    Attributes:
        path: a folder with AVA's videos or frames, or "synthetic".
        annotations: the folder of AVA's lists, if they are not below the videos' folder.
        start_second: the second at which videos begin; None is 0 for whole films, and 900 for shorter ones.
        train_short_side: least and largest shorter edge of the frames that training clips are cut from, in pixels; 0 is from
            8 to 10 sevenths of the size.
        test_short_side: shorter edge of the whole frames that are tested; 0 takes 8 sevenths of the size.
        flip_prob: how often training clips are mirrored.
        min_box_score: least score of a predicted person box.
        min_box_iou: least intersection over union by which a predicted box has an annotated one's actions in training.
        synthetic: the drawn videos that the path "synthetic" stands for.
    """

    path: DataPath = ""
    annotations: AnnotationsPath = None
    start_second: float | None = None
    train_short_side: tuple[int, int] = (0, 0)
    test_short_side: int = 0
    flip_prob: float = 0.5
    min_box_score: float = 0.9
    min_box_iou: float = 0.5
    synthetic: SyntheticAVAConfig = field(default_factory=SyntheticAVAConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "data", test_short_side=(0, None))
        for name in ("flip_prob", "min_box_score", "min_box_iou"):
            if not 0 <= getattr(self, name) <= 1:
                raise StillmotionError(f"data.{name} is {getattr(self, name)}; it lies between 0 and 1")


@dataclass(frozen=True)
class DetectConfig(EncoderRunConfig):
    """Everything that decides what a detection run computes."""

    verb: ClassVar[str] = "detect"
    data: DetectDataConfig = field(default_factory=DetectDataConfig)
    head: RoIHeadConfig = field(default_factory=RoIHeadConfig)
