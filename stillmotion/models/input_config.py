"""Clips that a network expects: frames, stride, rate, size, normalization."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stillmotion.errors import StillmotionError


class Normalization(NamedTuple):
    """Mean and standard deviation of each color channel, for values in [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


# Fields of `InputConfig` by the option of an encoder spec that sets them.
CLIP_OPTIONS = {"frames": "num_frames", "stride": "stride", "size": "image_size", "fps": "fps"}
WHOLE_VIDEO_FRAMES = 16  # frames that represent a whole video, for networks that process frames one by one
MAX_FPS = 1000
DEFAULT_IMAGE_SIZE = 224
IMAGENET_NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP_NORMALIZATION = Normalization((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


def check_fps(fps: float, name: str = "fps") -> None:
    """Check a frame rate.

    Args:
        fps: Frames per second; 0 uses the frame rate of each video.
        name: Name of the option, for the error.

    Raises:
        StillmotionError: If it is out of range.
    """
    if not 0 <= fps <= MAX_FPS:
        raise StillmotionError(
            f"{name} is {fps}; must be between 0 and {MAX_FPS} (0 uses the frame rate of each video)."
        )


@dataclass(frozen=True)
class InputConfig:
    """Clips a network expects: number of frames, stride, frame rate, size and normalization.

    Args:
        num_frames: Frames per clip.
        stride: Frames between two sampled ones; 0 spreads the frames over the whole video.
        image_size: Frame height, and width unless `frame_width` is set, in pixels.
        normalization: Mean and standard deviation of the colors.
        fps: Frame rate at which the stride counts; 0 uses the frame rate of each video.
        whole_frame: Resize the whole frame, without a center crop.
        frame_width: Width of frames that are not square; 0 makes them square.
    """

    num_frames: int
    stride: int
    image_size: int
    normalization: Normalization
    fps: float = 0.0
    whole_frame: bool = False
    frame_width: int = 0

    def __post_init__(self) -> None:
        for name, minimum in (("num_frames", 1), ("stride", 0), ("image_size", 1)):
            if getattr(self, name) < minimum:
                raise StillmotionError(f"{name} is {getattr(self, name)}; must be at least {minimum}.")
        check_fps(self.fps)

    def over_whole_video(self, height: int, width: int) -> "InputConfig":
        """Return an input that covers a whole video: 16 evenly spaced uncropped frames of the given size."""
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
        """How the frames of a clip are sampled, as keyword arguments of data sets."""
        return {"num_frames": self.num_frames, "stride": self.stride, "fps": self.fps}

    def replace(self, options: Mapping[str, Any]) -> "InputConfig":
        """Return a copy with other fields; None keeps a field, and a new image size makes frames square."""
        changes = {name: value for name, value in options.items() if value is not None}
        return replace(self, **changes, frame_width=0 if "image_size" in changes else self.frame_width)
