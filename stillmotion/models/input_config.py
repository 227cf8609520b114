"""What a network wants to be shown."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stillmotion.errors import StillmotionError


class Normalization(NamedTuple):
    """Mean and standard deviation of each colour, for values in [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CLIP_OPTIONS = {
    "frames": "num_frames",
    "stride": "stride",
    "size": "image_size",
    "fps": "fps",
}  # what of an intake can be asked for
WHOLE_VIDEO_FRAMES = 16  # frames of a video that is seen whole, where a network sees them one by one
MAX_FPS = 1000  # frames a second
IMAGENET_NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP_NORMALIZATION = Normalization(
    (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
)  # and BLIP's


def check_fps(fps: float, name: str = "fps") -> None:
    """Raises where this is no rate that strides are counted at. name: what the error calls it."""
    if not 0 <= fps <= MAX_FPS:
        raise StillmotionError(f"{name} is {fps}; choose up to {MAX_FPS}, or 0, which counts a video's own frames")


@dataclass(frozen=True)
class InputConfig:
    """What a network was trained to be shown: clips of so many frames, their stride, pixels a side, normalisation.

    stride: 0 spreads a clip's frames over the whole video. fps: frames a second that it counts; 0 counts a video's own.
    whole_frame: frames are resized whatever their shape, where otherwise their middle is cut out.
    frame_width: of frames that are shown entire; 0 makes them squares.
    """

    num_frames: int
    stride: int
    image_size: int
    normalization: Normalization
    fps: float = 0.0
    whole_frame: bool = False
    frame_width: int = 0

    def __post_init__(self) -> None:
        for name, least in (("num_frames", 1), ("stride", 0), ("image_size", 1)):
            if getattr(self, name) < least:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        check_fps(self.fps)

    def over_whole_video(self, height: int, width: int) -> "InputConfig":
        """A whole video at one glance: a few frames, spread over it, each entire and of this height and width."""
        return replace(
            self,
            num_frames=WHOLE_VIDEO_FRAMES,
            stride=0,
            fps=0.0,
            image_size=height,
            frame_width=width,
            whole_frame=True,
        )

    @property
    def sampling(self) -> dict[str, Any]:
        """How the frames of a clip are taken, by the names that data sets have for it."""
        return {"num_frames": self.num_frames, "stride": self.stride, "fps": self.fps}

    def replace(self, options: Mapping[str, Any]) -> "InputConfig":
        """The same with other clips, where a number of this name is given; another size is one of squares."""
        asked = {name: value for name, value in options.items() if value is not None}
        return replace(self, **asked, frame_width=0 if "image_size" in asked else self.frame_width)


DEFAULT_IMAGE_SIZE = 224
