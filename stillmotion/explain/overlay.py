"""Heat over frames: as pictures, as a filmstrip, and as a video that plays everywhere.

Shapes: T frames of H×W pixels; heat is (T, H, W) or coarser, within [0, 1].
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path

import av
import cv2
import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image, ImageDraw, ImageFont

from stillmotion.data.draws import LUMA
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.told import readable
from stillmotion.explain.figure import GREY, INK, plain
from stillmotion.files import write

_COLOURS = "inferno"
_COVER = 0.75  # of the frame by the hottest place
_GREYED = 0.65  # how far frames lose their colour, so that heat is the only one
_HEADING = 26  # pixels above a video
_GAP = 4
_PER_STRIP = 8


def unit_heat(heat: np.ndarray, *, signed: bool = False) -> np.ndarray:
    """Heat within [0, 1]: 1 is its 99th percentile, so that a hot corner hides nothing; 0 is 0, or the 1st if signed.

    What is the same everywhere is 0.
    """
    values = heat.astype(np.float64)
    low, high = np.percentile(values, [1, 99])
    if high <= low:  # all of it in a few places
        low, high = values.min(), values.max()
    low = low if signed else 0.0
    if not high > low + 1e-9 * abs(low):
        return np.zeros_like(values)
    return np.clip((values - low) / (high - low), 0, 1)


def overlay(frames: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """Frames uint8 (T, H, W, 3) under heat (T, h, w): dim and nearly grey where it is cold, glowing where it is hot."""
    if len(frames) != len(heat):
        raise StillmotionError(f"{len(frames)} frames and heat for {len(heat)}; they must be as many")
    table = matplotlib.colormaps[_COLOURS](np.linspace(0, 1, 256))[:, :3] * 255
    shown = np.empty_like(frames)
    for frame, values, target in zip(frames, heat, shown, strict=True):
        size = (frame.shape[1], frame.shape[0])
        hot = np.clip(cv2.resize(values.astype(np.float32), size, interpolation=cv2.INTER_LINEAR), 0, 1)[..., None]
        dim = 0.8 * ((1 - _GREYED) * frame + _GREYED * (frame @ LUMA)[..., None])
        colour = table[(255 * hot[..., 0]).round().astype(int)]
        target[:] = np.clip((1 - _COVER * hot) * dim + _COVER * hot * colour, 0, 255).round()
    return shown


def between(heat: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
    """Heat for every frame from the first to the last of the ascending `numbers`, linear between two of them."""
    every = np.arange(numbers[0], numbers[-1] + 1)
    place = np.interp(every, numbers, np.arange(len(numbers)))
    low = np.minimum(place.astype(int), len(heat) - 1)
    high = np.minimum(low + 1, len(heat) - 1)
    share = (place - low)[:, None, None]
    return (1 - share) * heat[low] + share * heat[high]


def filmstrip(frames: np.ndarray, rows: Mapping[str, np.ndarray], *, numbers: Sequence[int]) -> Figure:
    """Some of the frames in a row, and below them the same frames under each named heat.

    numbers: of the frames in their video, written above them. At most eight frames, evenly spaced.
    """
    shown = np.unique(np.linspace(0, len(frames) - 1, _PER_STRIP).round().astype(int))
    height = frames.shape[1] / frames.shape[2]
    figure = Figure(figsize=(0.45 + 1.3 * len(shown), 0.3 + 1.3 * height * (1 + len(rows))), facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1 + len(rows), len(shown), squeeze=False)
    left, top = 0.4 / figure.get_figwidth(), 1 - 0.22 / figure.get_figheight()
    figure.subplots_adjust(left=left, right=0.998, bottom=0.004, top=top, wspace=0.03, hspace=0.03 / height)
    pictures = {"video": frames[shown]} | {name: overlay(frames[shown], heat[shown]) for name, heat in rows.items()}
    for line, (name, row) in zip(grid, pictures.items(), strict=True):
        line[0].set_ylabel(plain(name), color=INK, fontsize=9)
        for axes, picture in zip(line, row, strict=True):
            axes.imshow(picture, aspect="auto", interpolation="lanczos")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(GREY)
            axes.spines[:].set_linewidth(0.5)
    for axes, place in zip(grid[0], shown, strict=True):
        axes.set_title(f"frame {numbers[place]}", color=INK, fontsize=8, pad=3)
    return figure


def side_by_side(panels: Mapping[str, np.ndarray]) -> np.ndarray:
    """Videos (T, H, W, 3) of one size beside each other, each under its name."""
    count, height, width, _ = next(iter(panels.values())).shape
    # H.264 in 4:2:0 needs even sizes.
    wide = (width + _GAP) * len(panels) - _GAP
    page = np.full((count, _HEADING + height + (_HEADING + height) % 2, wide + wide % 2, 3), 255, np.uint8)
    heading = Image.new("RGB", (page.shape[2], _HEADING), "white")
    pen = ImageDraw.Draw(heading)
    for place, (name, frames) in enumerate(panels.items()):
        x = place * (width + _GAP)
        page[:, _HEADING : _HEADING + height, x : x + width] = frames
        pen.text((x + 3, _HEADING // 2), readable(name), fill=INK, font=_font(), anchor="lm")
    page[:, :_HEADING] = np.asarray(heading)
    return page


def write_video(path: str | Path, frames: Iterable[np.ndarray], *, fps: float, option: str = "--out") -> Path:
    """Frames uint8 (H, W, 3), H and W even, as an H.264 mp4 in 4:2:0, whole or not at all."""
    if "libx264" not in av.codecs_available:
        raise StillmotionError("this build of PyAV has no libx264; install PyAV's own wheel (pip install av)")
    write(path, lambda partial: _encode(partial, frames, fps), option=option)
    return Path(path)


def _encode(file: Path, frames: Iterable[np.ndarray], fps: float) -> None:
    with av.open(str(file.absolute()), "w", format="mp4", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=Fraction(fps).limit_denominator(65535))
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "20", "preset": "medium"}
        stream.codec_context.thread_count = 1
        for number, picture in enumerate(frames):
            if number == 0:
                stream.height, stream.width = picture.shape[:2]
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@cache
def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 13)
