"""A folder of JPEG or PNG frames as a video."""

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from stillmotion.data.video.reader import DEFAULT_FPS, VideoReader, check_frame_indices
from stillmotion.errors import VideoError

IMAGE_SUFFIXES = [".jpg", ".jpeg", ".png"]
_FPS_RANGE = (1e-3, 1e5)


class FrameFolderReader(VideoReader):
    """A folder of images in natural order (frame2 before frame10).

    The frame rate is the number in `fps.txt` if the folder has this file, otherwise 30.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            with os.scandir(self.path) as entries:  # skip pipes and the like
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
        order = check_frame_indices(self.path, indices, len(self)).tolist()
        images = {index: _read_image(self.files[index]) for index in sorted(set(order))}
        sizes = {image.shape[1::-1] for image in images.values()}
        if len(sizes) > 1:
            examples = " and ".join(f"{w}×{h}" for w, h in sorted(sizes)[:2])
            raise VideoError(f"{self.path}: frames differ in size ({examples}); all must have the same size")
        return np.stack([images[index] for index in order])


def _read_image(file: Path) -> np.ndarray:
    """Read an RGB image from bytes, because OpenCV cannot open names that are not UTF-8."""
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
        fps = float(file.read_text(errors="replace"))
    except (OSError, ValueError) as error:
        raise VideoError(f"{file}: {error}; write the frame rate as one number") from None
    if not (math.isfinite(fps) and _FPS_RANGE[0] <= fps <= _FPS_RANGE[1]):
        raise VideoError(f"{file}: frame rate is {fps}; must be between {_FPS_RANGE[0]:g} and {_FPS_RANGE[1]:g}")
    return fps


def _natural_sort_key(path: Path) -> list[tuple[bool, int, str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
