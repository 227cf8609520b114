"""Videos labelled place by place: DAVIS, VIP and JHMDB as they are published, and key points of one's own.

Shapes: T frames of H×W pixels, J joints."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from stillmotion.data.datasets.annotations import check_folder, open_sequences, read_list_lines, select_sequences
from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.video.frame_folder import FrameFolderReader
from stillmotion.errors import VideoError

_VOID_LABEL = 255  # pixels that DAVIS leaves out; alone beside 0 it is the one object of a binary mask


@dataclass(frozen=True)
class MaskSequence:
    """A video with a mask for its first frame, and mostly for the others.

    masks: a file for each frame, or None.
    """

    name: str
    video: FrameFolderReader
    masks: Sequence[Path | None]

    def read_mask(self, frame_index: int) -> np.ndarray | None:
        """Object or class of each pixel, uint8 (H, W), 0 is background; None where the frame has no mask."""
        file = self.masks[frame_index]
        return None if file is None else read_mask(file)


def open_mask_sequences(
    layout: Literal["davis", "vip"],
    root: str | Path,
    *,
    resolution: str = "480p",
    split: str = "val",
    names: Sequence[str] = (),
) -> tuple[list[MaskSequence], FailedVideos]:
    """The sequences of DAVIS or VIP in a folder as it is published, and the reason for each that cannot be opened.

    davis: JPEGImages/<resolution>, Annotations/<resolution> and a list in ImageSets, of 2017 before 2016.
    vip: Images, Annotations/Category_ids (or Annotations) and lists/<split>_videos.txt.
    names: these sequences and no others. Without a list all folders are taken.
    """
    root = check_folder(Path(root))
    if layout == "davis":
        frames, masks = root / "JPEGImages" / resolution, root / "Annotations" / resolution
        years = [root / "ImageSets" / year / f"{split}.txt" for year in ("2017", "2016", resolution)]
        listed = next((file for file in years if file.exists()), None)
    else:
        frames, masks = root / "Images", root / "Annotations" / "Category_ids"
        masks = masks if masks.is_dir() else root / "Annotations"
        listed = root / "lists" / f"{split}_videos.txt"
        listed = listed if listed.exists() else None
    check_folder(frames, "name the resolution as the folder under JPEGImages is called" if layout == "davis" else "")
    names = select_sequences(
        _read_sequence_names(listed) if listed else [f.name for f in sorted(frames.iterdir()) if f.is_dir()], names
    )
    return open_sequences(names, lambda name: [_open_mask_sequence(name, frames / name, masks / name)])


def read_mask(file: Path) -> np.ndarray:
    """A palette or grey PNG as the number of each pixel's object, uint8 (H, W)."""
    try:
        with Image.open(file) as picture:
            mask = np.array(picture if picture.mode in ("P", "L") else picture.convert("L"))
    except OSError as error:
        raise VideoError(f"{file}: cannot be read as a mask ({error})") from None
    binary = np.isin(mask, (0, _VOID_LABEL)).all()
    return np.where(mask == _VOID_LABEL, np.uint8(binary), mask).astype(np.uint8)


def write_mask(file: Path, mask: np.ndarray) -> None:
    """A mask uint8 (H, W) as a palette PNG, in the colours of PASCAL and DAVIS."""
    picture = Image.fromarray(mask, "P")
    picture.putpalette(davis_palette().tobytes())
    picture.save(file)


def davis_palette(num_colors: int = 256) -> np.ndarray:
    """The colours (count, 3) of PASCAL and DAVIS: the bits of a number are, in turn, bits of red, green and blue."""
    numbers = np.arange(num_colors)[:, None] >> np.arange(3)
    bits = [((numbers >> 3 * i) & 1) << (7 - i) for i in range(8)]
    return np.sum(bits, axis=0).astype(np.uint8)


def _open_mask_sequence(name: str, frames: Path, masks: Path) -> MaskSequence:
    if not frames.is_dir():
        raise VideoError(f"{frames}: no such folder of frames")
    video = FrameFolderReader(frames)
    files = {file.stem: file for file in masks.glob("*.png")} if masks.is_dir() else {}
    found = [files.get(frame.stem) for frame in video.files]
    if found[0] is None:
        raise VideoError(f"{masks}: no mask for the first frame, {video.files[0].name}")
    return MaskSequence(name, video, found)


def _read_sequence_names(file: Path) -> list[str]:
    """Names of sequences, one a line; where a line names frames and masks, as in DAVIS 2016, those of their folders."""
    firsts = [line.split()[0] for line in read_list_lines(file)]
    return list(dict.fromkeys(Path(first).parent.name if Path(first).suffix else first for first in firsts))
