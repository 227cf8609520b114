"""What a network wants to be shown."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stillmotion.errors import StillmotionError


class Normalisation(NamedTuple):
    """Mean and standard deviation of each colour, for values in [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


CLIPS = ("frames", "stride", "size", "fps")  # what of an intake can be asked for
GLANCES = 16  # frames of a video that is seen whole, where a network sees them one by one
FASTEST = 1000  # frames a second
IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def check_rate(fps: float, name: str = "fps") -> None:
    """Raises where this is no rate that strides are counted at. name: what the error calls it."""
    if not 0 <= fps <= FASTEST:
        raise StillmotionError(f"{name} is {fps}; choose up to {FASTEST}, or 0, which counts a video's own frames")


@dataclass(frozen=True)
class Intake:
    """What a network was trained to be shown: clips of so many frames, their stride, pixels a side, normalisation.

    stride: 0 spreads a clip's frames over the whole video. fps: frames a second that it counts; 0 counts a video's own.
    entire: frames are resized whatever their shape, where otherwise their middle is cut out.
    width: of frames that are shown entire; 0 makes them squares.
    """

    frames: int
    stride: int
    size: int
    normalisation: Normalisation
    fps: float = 0.0
    entire: bool = False
    width: int = 0

    def __post_init__(self) -> None:
        for name, least in (("frames", 1), ("stride", 0), ("size", 1)):
            if getattr(self, name) < least:
                raise StillmotionError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        check_rate(self.fps)

    def spread(self, height: int, width: int) -> "Intake":
        """A whole video at one glance: a few frames, spread over it, each entire and of this height and width."""
        return replace(self, frames=GLANCES, stride=0, fps=0.0, size=height, width=width, entire=True)

    @property
    def sampling(self) -> dict[str, Any]:
        """How the frames of a clip are taken, by the names that data sets have for it."""
        return {"frames": self.frames, "stride": self.stride, "fps": self.fps}

    def changed(self, clips: Mapping[str, Any]) -> "Intake":
        """The same with other clips, where a number of this name is given; another size is one of squares."""
        asked = {name: value for name, value in clips.items() if value is not None}
        return replace(self, **asked, width=0 if "size" in asked else self.width)
