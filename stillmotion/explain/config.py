"""Options of `stillmotion explain` about what a saliency map is computed for; light to import."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from stillmotion.errors import StillmotionError


@dataclass(frozen=True)
class SaliencyTarget:
    """What a saliency map is computed for; by default similarity to the first clip of the same video.

    Attributes:
        reference_video: Explain similarity to this video; default is the first clip of the same video.
        reference_folder: Explain similarity to the mean embedding of the videos in this folder.
        class_name: Show saliency tubes for this class, from a fine-tuned head or from a linear probe trained on
            --probe-data.
        probe_data: Labeled videos to train the linear probe on.
    """

    reference_video: str | None = None
    reference_folder: str | None = None
    class_name: Annotated[str | None, arg(name="class-name")] = None
    probe_data: str | None = None

    def __post_init__(self) -> None:
        targets = {
            "--reference-video": self.reference_video,
            "--reference-folder": self.reference_folder,
            "--class-name": self.class_name,
        }
        given = [name for name, value in targets.items() if value is not None]
        if len(given) > 1:
            raise StillmotionError(f"{given[0]} and {given[1]} cannot be combined; give one")
        if self.probe_data is not None and self.class_name is None:
            raise StillmotionError("--probe-data needs --class-name")
