"""Folders of images as videos, and the check of frame numbers that all videos share."""

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from stillmotion.data.video.reader import DEFAULT_FPS, check_frame_indices
from stillmotion.errors import VideoError

IMAGE_SUFFIXES = [".jpg", ".jpeg", ".png"]
_FPS_RANGE = (1e-3, 1e5)  # frames a second


class FrameFolderReader:
    """A folder of images in natural order (frame2 before frame10).

    Its rate is the number in `fps.txt` where the folder has one, and 30 otherwise.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with os.scandir(self.path) as entries:  # what is no file, such as a pipe of this name, is passed over
                names = {entry.name for entry in entries if entry.is_file()}
        except OSError as error:
            raise VideoError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
        frames = (self.path / name for name in names)
        self.files = sorted((file for file in frames if file.suffix.lower() in IMAGE_SUFFIXES), key=_natural_sort_key)
        if not self.files:
            raise VideoError(f"{path}: no frames in this folder (looked for {', '.join(IMAGE_SUFFIXES)})")
        self.fps = _read_fps(self.path / "fps.txt") if "fps.txt" in names else DEFAULT_FPS

    def __len__(self) -> int:
        return len(self.files)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        wanted = check_frame_indices(self.path, indices, len(self))
        images: dict[int, np.ndarray] = {}
        for number in sorted(set(wanted.tolist())):
            images[number] = _read_image(self.files[number])
        sizes = {image.shape[1::-1] for image in images.values()}
        if len(sizes) > 1:
            listed = " and ".join(f"{w}×{h}" for w, h in sorted(sizes)[:2])
            raise VideoError(f"{self.path}: frames differ in size ({listed}); a video has one size")
        return np.stack([images[number] for number in wanted.tolist()])


def _read_image(file: Path) -> np.ndarray:
    """A picture in RGB. OpenCV is given bytes, since it refuses names that are not UTF-8."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise VideoError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB) if content else None
    if image is None:
        raise VideoError(f"{file}: cannot be read as an image")
    return image


def _read_fps(file: Path) -> float:
    try:
        rate = float(file.read_text(errors="replace"))
    except (OSError, ValueError) as error:
        raise VideoError(f"{file}: {error}; write the frame rate as one number") from None
    if not (math.isfinite(rate) and _FPS_RANGE[0] <= rate <= _FPS_RANGE[1]):
        raise VideoError(
            f"{file}: a rate of {rate} frames a second; write a number from {_FPS_RANGE[0]:g} to {_FPS_RANGE[1]:g}"
        )
    return rate


def _natural_sort_key(path: Path) -> list[tuple[bool, int, str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
