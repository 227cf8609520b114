"""Which videos an embedding holds to be alike, and moving thumbnails to see for oneself.

Shapes: N videos, D channels."""

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


def thumbnail_uri(video: VideoReader, *, short_side: int = 96, max_frames: int = 32) -> str:
    """A video as a small animated WebP in a data URI.

    short_side: its shorter edge, never enlarged. frames: at most so many, evenly spaced over the whole video.
    """
    step = -(-len(video) // max_frames)
    pictures = [shrink_to_short_side(frame, short_side) for frame in video.get_frames(range(0, len(video), step))]
    return webp_data_uri(encode_animated_webp(pictures, frame_seconds=step / max(video.fps, 1)))


def webp_data_uri(webp: bytes) -> str:
    """A WebP as a page holds it."""
    return "data:image/webp;base64," + base64.b64encode(webp).decode()


_HEADING_HEIGHT = 26  # pixels above a video
_PANEL_GAP = 4


def concat_panels(panels: Mapping[str, np.ndarray]) -> np.ndarray:
    """Videos (T, H, W, 3) of one size beside each other, each under its name."""
    count, height, width, _ = next(iter(panels.values())).shape
    # H.264 in 4:2:0 needs even sizes.
    wide = (width + _PANEL_GAP) * len(panels) - _PANEL_GAP
    page = np.full(
        (count, _HEADING_HEIGHT + height + (_HEADING_HEIGHT + height) % 2, wide + wide % 2, 3), 255, np.uint8
    )
    heading = Image.new("RGB", (page.shape[2], _HEADING_HEIGHT), "white")
    pen = ImageDraw.Draw(heading)
    for place, (name, frames) in enumerate(panels.items()):
        x = place * (width + _PANEL_GAP)
        page[:, _HEADING_HEIGHT : _HEADING_HEIGHT + height, x : x + width] = frames
        pen.text((x + 3, _HEADING_HEIGHT // 2), printable_name(name), fill=TEXT_COLOR, font=label_font(), anchor="lm")
    page[:, :_HEADING_HEIGHT] = np.asarray(heading)
    return page


@cache
def label_font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 13)


def data_uri(content: bytes, media_type: str) -> str:
    """A file's content as an address within a page."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def image_file_uri(file: Path) -> str:
    """A picture as a data URI, smaller than its PNG."""
    with Image.open(file) as picture:
        return image_uri(np.asarray(picture.convert("RGB")))


def image_uri(pixels: np.ndarray) -> str:
    """A picture, uint8 (H, W, 3), as a data URI."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "WEBP", quality=82, method=4)
    return data_uri(content.getvalue(), "image/webp")
