"""What an explanation is asked, as options; light to import."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from stillmotion.errors import StillmotionError


@dataclass(frozen=True)
class Target:
    """What a video's clip is to be similar to; by default, to the first clip of the same video.

    Attributes:
        against: a video.
        class_mean: a folder of videos, to whose mean.
        row: saliency tubes alone, by a classifier's row of this class: the head's of a fine-tuned run, of others that
            of a linear probe on --labelled.
        labelled: videos in classes, for that probe.
    """

    against: str | None = None
    class_mean: str | None = None
    row: Annotated[str | None, arg(name="class")] = None
    labelled: str | None = None

    def __post_init__(self) -> None:
        asked = {"--against": self.against, "--class-mean": self.class_mean, "--class": self.row}
        given = [name for name, value in asked.items() if value is not None]
        if len(given) > 1:
            raise StillmotionError(f"{given[0]} and {given[1]} are two targets; give one of them")
        if self.labelled is not None and self.row is None:
            raise StillmotionError("--labelled is for a class's row; add --class NAME")
