"""A folder of JPEG or PNG frames as a video."""

import io
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from stillmotion.data.video import input_limits
from stillmotion.data.video.reader import DEFAULT_FPS, VideoReader, check_frame_indices
from stillmotion.errors import VideoError, as_video_error

IMAGE_SUFFIXES = [".jpg", ".jpeg", ".png"]
_FPS_RANGE = (1e-3, 1e5)


class FrameFolderReader(VideoReader):
    """A folder of images in natural order (frame2 before frame10).

    The frame rate is the number in `fps.txt` if the folder has this file, otherwise 30.

    Args:
        path: The folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path, self.name = Path(path), str(path)
        try:
            with os.scandir(self.path) as entries:  # skip pipes and the like
                names = {entry.name for entry in entries if entry.is_file()}
        except OSError as error:
            raise VideoError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
        frames = (self.path / name for name in names)
        self.files = sorted((file for file in frames if file.suffix.lower() in IMAGE_SUFFIXES), key=_natural_sort_key)
        if not self.files:
            raise VideoError(f"{path}: no frames in this folder (looked for {', '.join(IMAGE_SUFFIXES)})")
        self._frame_shape: tuple[int, ...] | None = None  # of the first image that was read
        self.fps = _read_fps(self.path / "fps.txt") if "fps.txt" in names else DEFAULT_FPS

    def __len__(self) -> int:
        return len(self.files)

    def get_frames(self, indices: Sequence[int]) -> np.ndarray:
        order = check_frame_indices(self.path, indices, len(self)).tolist()
        images = {}
        for index in sorted(set(order)):
            images[index] = image = _read_image(self.files[index])
            self._frame_shape = self._frame_shape or image.shape
            if image.shape != self._frame_shape:
                sizes = " and ".join(f"{width}×{height}" for height, width, _ in (self._frame_shape, image.shape))
                raise VideoError(f"{self.path}: frames differ in size ({sizes}); all must have the same size")
            input_limits.check_clip_size(self.path, len(order), *image.shape[:2])
        return np.stack([images[index] for index in order])


def _read_image(file: Path) -> np.ndarray:
    """Read an RGB image from bytes, because OpenCV cannot open names that are not UTF-8."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise VideoError(f"{file}: {(error.strerror or 'cannot be read').lower()}") from None
    with as_video_error(file):
        width, height = _read_image_size(file, content)
        input_limits.check_frame_size(file, height, width)
        image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR_RGB)
    if image is None:
        raise VideoError(f"{file}: cannot be read as an image")
    return image


def _read_image_size(file: Path, content: bytes) -> tuple[int, int]:
    """Width and height in the header of an image."""
    for kind in (JpegImageFile, PngImageFile):  # Image.open would apply a limit of its own
        try:
            return kind(io.BytesIO(content)).size
        except SyntaxError:  # another format
            pass
    try:
        return Image.open(io.BytesIO(content)).size
    except UnidentifiedImageError:
        raise VideoError(f"{file}: cannot be read as an image") from None


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
