"""What an explanation is asked, as options; light to import."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from stillmotion.errors import StillmotionError


@dataclass(frozen=True)
class SaliencyTarget:
    """What a video's clip is to be similar to; by default, to the first clip of the same video.

    Attributes:
        reference_video: a video.
        reference_folder: a folder of videos, to whose mean.
        class_name: saliency tubes alone, by a classifier's row of this class: the head's of a fine-tuned run, of others that
            of a linear probe on --probe-data.
        probe_data: videos in classes, for that probe.
    """

    reference_video: str | None = None
    reference_folder: str | None = None
    class_name: Annotated[str | None, arg(name="class-name")] = None
    probe_data: str | None = None

    def __post_init__(self) -> None:
        asked = {
            "--reference-video": self.reference_video,
            "--reference-folder": self.reference_folder,
            "--class-name": self.class_name,
        }
        given = [name for name, value in asked.items() if value is not None]
        if len(given) > 1:
            raise StillmotionError(f"{given[0]} and {given[1]} are two targets; give one of them")
        if self.probe_data is not None and self.class_name is None:
            raise StillmotionError("--probe-data is for a class's row; add --class-name NAME")
