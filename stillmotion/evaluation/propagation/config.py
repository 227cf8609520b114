"""Options of `stillmotion propagate`."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from stillmotion.errors import StillmotionError
from stillmotion.utils.option_types import DataPath, SplitName

MIN_SEQUENCE_FRAMES = 3  # the first is given, and the last of DAVIS does not count


@dataclass(frozen=True)
class SequenceDataConfig:
    """Videos whose first frame is labeled.

    Attributes:
        path: Data set folder as published; for points, videos with a NAME_keypoints.npz beside each.
        layout: Data set: davis, vip, jhmdb or points.
        resolution: DAVIS resolution: name of the folder under JPEGImages, e.g. 480p.
        split: Split: a list name (DAVIS, VIP), a split number (JHMDB), or a file of frames and joints.
        sequence_names: Names of the sequences to run; default: all.
        max_frames: Use only the first N frames of each sequence.
    """

    path: DataPath = ""
    layout: Literal["davis", "vip", "jhmdb", "points"] = "davis"
    resolution: str = "480p"
    split: SplitName = None
    sequence_names: Annotated[tuple[str, ...], arg(name="sequences")] = ()
    max_frames: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", str(self.path))  # a pathlib.Path may be given
        if self.max_frames is not None and self.max_frames < MIN_SEQUENCE_FRAMES:
            raise StillmotionError(
                f"A sequence needs at least {MIN_SEQUENCE_FRAMES} frames, got {self.max_frames}. Increase --max-frames."
            )


@dataclass(frozen=True)
class PropagationConfig:
    """Protocol of label propagation.

    Attributes:
        protocol: image-to-video: settings of the transfer paper. authors: the same by the scripts of its figures (of
            CropMAE and T-CoRe), to compare with published figures. dino, videowalk: settings of those papers.
        layer: Use features of this transformer block or backbone stage; default: the last.
        image_size: Frame size as HEIGHTxWIDTH, e.g. 480x880; overrides the protocol's.
        overlay: Write a video with the propagated labels for each sequence.
    """

    protocol: Literal["image-to-video", "authors", "dino", "videowalk"] = "image-to-video"
    layer: int | None = None
    image_size: str | None = None
    overlay: bool = True

    def __post_init__(self) -> None:
        self.parsed_image_size()

    def encoder_spec(self, spec: str) -> str:
        """Return an encoder spec with the layer as its option."""
        return spec if self.layer is None else f"{spec}{',' if '@' in spec else '@'}layer={self.layer}"

    def parsed_image_size(self) -> tuple[int, int] | None:
        """Return height and width, or None if no size is given."""
        if self.image_size is None:
            return None
        height, _, width = self.image_size.replace("×", "x").partition("x")
        if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
            raise StillmotionError(f"--image-size must be HEIGHTxWIDTH, such as 480x880, got {self.image_size!r}.")
        return int(height), int(width)
