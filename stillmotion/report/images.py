"""Images, thumbnails and files as data URIs, and labeled panels side by side."""

import base64
import io
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont

from stillmotion.data.video.reader import VideoReader
from stillmotion.data.video.thumbnails import encode_animated_webp, shrink_to_short_side
from stillmotion.report.plot_style import TEXT_COLOR
from stillmotion.utils.formatting import printable_name

_HEADING_HEIGHT = 26  # pixels above a panel
_PANEL_GAP = 4


def data_uri(content: bytes, media_type: str) -> str:
    """Encode the content of a file as a data URI.

    Args:
        content: The content.
        media_type: Its media type, such as "image/webp".
    """
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def image_uri(pixels: np.ndarray) -> str:
    """Encode an image, uint8 (H, W, 3), as a data URI."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "WEBP", quality=82, method=4)
    return data_uri(content.getvalue(), "image/webp")


def image_file_uri(file: Path) -> str:
    """Encode an image file as a data URI, smaller than its PNG."""
    with Image.open(file) as image:
        return image_uri(np.asarray(image.convert("RGB")))


def thumbnail_uri(video: VideoReader, *, short_side: int = 96, max_frames: int = 32) -> str:
    """Encode a video as a small animated WebP in a data URI.

    Args:
        video: The video.
        short_side: Shorter side in pixels; smaller videos are not enlarged.
        max_frames: Maximum number of frames, evenly spaced over the video.
    """
    step = -(-len(video) // max_frames)
    frames = [shrink_to_short_side(frame, short_side) for frame in video.get_frames(range(0, len(video), step))]
    return data_uri(encode_animated_webp(frames, frame_seconds=step / max(video.fps, 1)), "image/webp")


def concat_panels(panels: Mapping[str, np.ndarray]) -> np.ndarray:
    """Place videos side by side, each under its name; names that are too long are shortened.

    Args:
        panels: Videos of one size by name, uint8 (T, H, W, 3).

    Returns:
        The frames, uint8 (T, H', W', 3); H' and W' are even, as H.264 in 4:2:0 needs.
    """
    count, height, width, _ = next(iter(panels.values())).shape
    full_height, full_width = _HEADING_HEIGHT + height, (width + _PANEL_GAP) * len(panels) - _PANEL_GAP
    canvas = np.full((count, full_height + full_height % 2, full_width + full_width % 2, 3), 255, np.uint8)
    heading = Image.new("RGB", (canvas.shape[2], _HEADING_HEIGHT), "white")
    pen = ImageDraw.Draw(heading)
    for i, (name, frames) in enumerate(panels.items()):
        x = i * (width + _PANEL_GAP)
        canvas[:, _HEADING_HEIGHT : _HEADING_HEIGHT + height, x : x + width] = frames
        label = _shorten(printable_name(name), width - 3)
        pen.text((x + 3, _HEADING_HEIGHT // 2), label, fill=TEXT_COLOR, font=label_font(), anchor="lm")
    canvas[:, :_HEADING_HEIGHT] = np.asarray(heading)
    return canvas


def _shorten(name: str, max_width: int) -> str:
    label = name
    while len(name) > 1 and label_font().getlength(label) > max_width:
        name = name[:-1]
        label = f"{name.rstrip()}…"
    return label


@cache
def label_font() -> ImageFont.FreeTypeFont:
    """Return the font of labels on images."""
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 13)
