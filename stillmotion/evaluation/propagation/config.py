"""What evaluations are asked, as options; light to import, so that help does not wait for torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from stillmotion.errors import StillmotionError
from stillmotion.utils.option_types import DataPath, SplitName

MIN_SEQUENCE_FRAMES = 3  # of a sequence: the first is given, and the last of DAVIS does not count


@dataclass(frozen=True)
class SequenceDataConfig:
    """Videos whose first frame is labelled.

    Attributes:
        path: the set's folder as it is published; for points, videos beside <name>_keypoints.npz.
        layout: which set it is.
        resolution: of DAVIS, the folder under JPEGImages.
        split: the name of DAVIS's or VIP's list, the number of JHMDB's split, or a file of its frames and joints.
        sequence_names: these sequences.
        max_frames: only the first so many of each sequence.
    """

    path: DataPath = ""
    layout: Literal["davis", "vip", "jhmdb", "points"] = "davis"
    resolution: str = "480p"
    split: SplitName = None
    sequence_names: Annotated[tuple[str, ...], arg(name="sequences")] = ()
    max_frames: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))  # a pathlib.Path is welcome
        if self.max_frames is not None and self.max_frames < MIN_SEQUENCE_FRAMES:
            raise StillmotionError(
                f"{self.max_frames} frames asked for; raise --max-frames to at least {MIN_SEQUENCE_FRAMES}"
            )


@dataclass(frozen=True)
class PropagationConfig:
    """By which protocol labels are carried on.

    Attributes:
        preset: whose protocol: matches, context, radius, temperature and frame size.
        layer: take features after this block of a transformer, or stage of a backbone; the last if left out.
        image_size: height×width of frames such as 480x880, in place of the preset's, which enlarges only jhmdb and points.
    """

    preset: Literal["image-to-video", "dino", "videowalk"] = "image-to-video"
    layer: int | None = None
    image_size: str | None = None

    def __post_init__(self) -> None:
        self.parsed_image_size()

    def encoder_spec(self, spec: str) -> str:
        """The text of an encoder, with the layer behind it."""
        return spec if self.layer is None else f"{spec}{',' if '@' in spec else '@'}layer={self.layer}"

    def parsed_image_size(self) -> tuple[int, int] | None:
        """Height and width, where they are given."""
        if self.image_size is None:
            return None
        height, _, width = self.image_size.replace("×", "x").partition("x")
        if not (height.isdigit() and width.isdigit() and int(height) and int(width)):
            raise StillmotionError(f"size is {self.image_size!r}; write height and width, such as 480x880")
        return int(height), int(width)
