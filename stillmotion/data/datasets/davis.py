"""Mask sequences of DAVIS and VIP as they are published, and mask PNGs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from stillmotion.data.datasets.annotations import open_readable_sequences, select_sequences
from stillmotion.data.datasets.base import FailedVideos
from stillmotion.data.datasets.list_files import check_exists, read_text_lines
from stillmotion.data.video.frame_folder import FrameFolderReader
from stillmotion.errors import VideoError

MaskLayout = Literal["davis", "vip"]
_VOID_LABEL = 255  # pixels that DAVIS ignores; if 0 is the only other value, it is the object of a binary mask


@dataclass(frozen=True)
class MaskSequence:
    """A video with a mask of its first frame, and usually of the others.

    Attributes:
        name: Name of the sequence.
        video: Its frames.
        masks: Mask file of each frame, or None.
    """

    name: str
    video: FrameFolderReader
    masks: Sequence[Path | None]

    def read_mask(self, frame_index: int) -> np.ndarray | None:
        """Read the mask of a frame.

        Args:
            frame_index: Index of the frame.

        Returns:
            Object or class of each pixel, uint8 (H, W), 0 for background; None if the frame has no mask.
        """
        file = self.masks[frame_index]
        return None if file is None else read_mask(file)


class MaskPaths(NamedTuple):
    """Where a mask data set is: folders of frames and masks, and possible list files, the preferred one first."""

    frames: Path
    masks: Path
    list_files: list[Path]

    def existing_list(self) -> Path | None:
        """The first list file that exists."""
        return next((file for file in self.list_files if file.exists()), None)


def mask_paths(layout: MaskLayout, root: Path, *, resolution: str = "480p", split: str = "val") -> MaskPaths:
    """Paths of a published mask data set.

    Args:
        layout: davis: JPEGImages/<resolution>, Annotations/<resolution> and a list in ImageSets, of 2017 before 2016.
            vip: Images, Annotations/Category_ids (or Annotations) and lists/<split>_videos.txt.
        root: Folder of the data set.
        resolution: Folder below JPEGImages. Only for DAVIS.
        split: Split of the list.
    """
    if layout == "davis":
        lists = [root / "ImageSets" / year / f"{split}.txt" for year in ("2017", "2016", resolution)]
        return MaskPaths(root / "JPEGImages" / resolution, root / "Annotations" / resolution, lists)
    masks = root / "Annotations" / "Category_ids"
    lists = [root / "lists" / f"{split}_videos.txt"]
    return MaskPaths(root / "Images", masks if masks.is_dir() else root / "Annotations", lists)


def open_mask_sequences(
    layout: MaskLayout, root: str | Path, *, resolution: str = "480p", split: str = "val", names: Sequence[str] = ()
) -> tuple[list[MaskSequence], FailedVideos]:
    """Open the sequences of DAVIS or VIP.

    Args:
        layout: Which data set, as in `mask_paths`.
        root: Folder of the data set.
        resolution: Folder below JPEGImages. Only for DAVIS.
        split: Split to open. Without a list all sequences are opened.
        names: Names of the sequences to open; empty opens all.

    Returns:
        The sequences, and name and reason of each that could not be opened.
    """
    paths = mask_paths(layout, check_exists(Path(root), is_dir=True), resolution=resolution, split=split)
    hint = "Set the resolution to the name of a folder below JPEGImages." if layout == "davis" else ""
    frames = check_exists(paths.frames, hint, is_dir=True)
    file = paths.existing_list()
    listed = _read_sequence_names(file) if file else [each.name for each in sorted(frames.iterdir()) if each.is_dir()]
    return open_readable_sequences(
        select_sequences(listed, names), lambda name: [_open_mask_sequence(name, frames / name, paths.masks / name)]
    )


def read_mask(file: Path) -> np.ndarray:
    """Read a palette or gray PNG.

    Args:
        file: Image file.

    Returns:
        Object of each pixel, uint8 (H, W); 0 for background.

    Raises:
        VideoError: The file is no image.
    """
    try:
        with Image.open(file) as image:
            mask = np.array(image if image.mode in ("P", "L") else image.convert("L"))
    except OSError as error:
        raise VideoError(f"{file}: cannot be read as a mask ({error}).") from None
    binary = np.isin(mask, (0, _VOID_LABEL)).all()
    return np.where(mask == _VOID_LABEL, np.uint8(binary), mask).astype(np.uint8)


def write_mask(file: Path, mask: np.ndarray) -> None:
    """Write a mask as a palette PNG in the colors of PASCAL and DAVIS.

    Args:
        file: File to write.
        mask: Object of each pixel, uint8 (H, W).
    """
    image = Image.fromarray(mask, "P")
    image.putpalette(davis_palette().tobytes())
    image.save(file)


def davis_palette() -> np.ndarray:
    """Colors of PASCAL and DAVIS: the bits of an index are, in turn, bits of red, green and blue.

    Returns:
        RGB uint8 (256, 3).
    """
    shifted = np.arange(256)[:, None] >> np.arange(3)
    bits = [((shifted >> 3 * i) & 1) << (7 - i) for i in range(8)]
    return np.sum(bits, axis=0).astype(np.uint8)


def _open_mask_sequence(name: str, frames: Path, masks: Path) -> MaskSequence:
    if not frames.is_dir():
        raise VideoError(f"{frames}: no such folder of frames.")
    video = FrameFolderReader(frames)
    files = {file.stem: file for file in masks.glob("*.png")} if masks.is_dir() else {}
    mask_files = [files.get(frame.stem) for frame in video.files]
    if mask_files[0] is None:
        raise VideoError(f"{masks}: no mask for the first frame, {video.files[0].name}.")
    return MaskSequence(name, video, mask_files)


def _read_sequence_names(file: Path) -> list[str]:
    """Names of sequences, one per line. DAVIS 2016 names frames and masks: take the names of their folders."""
    firsts = [line.split()[0] for line in read_text_lines(file)]
    return list(dict.fromkeys(Path(first).parent.name if Path(first).suffix else first for first in firsts))
