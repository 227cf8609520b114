"""What an explanation is asked, as options; light to import."""

from dataclasses import dataclass

from stillmotion.errors import StillmotionError


@dataclass(frozen=True)
class Target:
    """What a video's clip is to be similar to; by default, to the first clip of the same video.

    Attributes:
        against: a video.
        class_mean: a folder of videos, to whose mean.
    """

    against: str | None = None
    class_mean: str | None = None

    def __post_init__(self) -> None:
        if self.against is not None and self.class_mean is not None:
            raise StillmotionError("--against and --class-mean are two targets; give one of them")
