"""Action detection configuration: key-frame data, head."""

from dataclasses import dataclass, field
from typing import ClassVar

from stillmotion.data.synthetic.ava import SyntheticAVAConfig
from stillmotion.models.detector import RoIHeadConfig
from stillmotion.training.config import ClipConfig, EncoderRunConfig
from stillmotion.utils.option_types import AnnotationsPath, DataPath
from stillmotion.utils.typed_config import check_ranges


@dataclass(frozen=True)
class DetectDataConfig(ClipConfig):
    """Key frames, the clips around them, and boxes.

    Attributes:
        path: Directory with AVA's videos or frames, or synthetic.
        annotations: Directory of AVA's annotation files, if not inside the video directory.
        start_second: Timestamp of the first frame of the videos, in seconds. Default: 0 for whole films, 900 for
            excerpts.
        train_short_side: Minimum and maximum shorter side of training frames before cropping, in pixels. 0 0 uses 8/7
            to 10/7 of image_size.
        test_short_side: Shorter side of test frames in pixels. 0 uses 8/7 of image_size.
        flip_prob: Probability of a horizontal flip of training clips.
        min_box_score: Minimum score of a predicted person box.
        min_box_iou: Minimum IoU at which a predicted box takes the actions of an annotated box in training.
        synthetic: Options of the synthetic AVA videos that --data synthetic generates.
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
        check_ranges(
            self, "data", test_short_side=(0, None), flip_prob=(0, 1), min_box_score=(0, 1), min_box_iou=(0, 1)
        )


@dataclass(frozen=True)
class DetectConfig(EncoderRunConfig):
    """Complete configuration of an action detection run.

    Attributes:
        data: Key frames, clips around them, and boxes.
        head: Head on the boxes.
        from_scratch: Use the encoder's architecture with random weights, drawn with --train.seed.
    """

    verb: ClassVar[str] = "detect"
    data: DetectDataConfig = field(default_factory=DetectDataConfig)
    head: RoIHeadConfig = field(default_factory=RoIHeadConfig)
    from_scratch: bool = False
