"""Heat over frames: as pictures, as a filmstrip, and as a video that plays everywhere.

Shapes: T frames of H×W pixels; heat is (T, H, W) or coarser, within [0, 1]."""

from collections.abc import Mapping, Sequence

import cv2
import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from stillmotion.data.transforms.parameters import LUMA_WEIGHTS
from stillmotion.errors import StillmotionError
from stillmotion.report.plot_style import GRAY, TEXT_COLOR, escape_mathtext

_COLORMAP = "inferno"
_MAX_OPACITY = 0.75  # of the frame by the hottest place
_DESATURATION = 0.65  # how far frames lose their colour, so that heat is the only one
_FRAMES_PER_STRIP = 8


def normalize_heatmap(heatmap: np.ndarray, *, signed: bool = False) -> np.ndarray:
    """Heat within [0, 1]: 1 is its 99th percentile, so that a hot corner hides nothing; 0 is 0, or the 1st if signed.

    What is the same everywhere is 0.
    """
    values = heatmap.astype(np.float64)
    low, high = np.percentile(values, [1, 99])
    if high <= low:  # all of it in a few places
        low, high = values.min(), values.max()
    low = low if signed else 0.0
    if not high > low + 1e-9 * abs(low):
        return np.zeros_like(values)
    return np.clip((values - low) / (high - low), 0, 1)


def overlay_heatmap(frames: np.ndarray, heatmap: np.ndarray) -> np.ndarray:
    """Frames uint8 (T, H, W, 3) under heat (T, h, w): dim and nearly grey where it is cold, glowing where it is hot."""
    if len(frames) != len(heatmap):
        raise StillmotionError(f"{len(frames)} frames and heat for {len(heatmap)}; they must be as many")
    table = matplotlib.colormaps[_COLORMAP](np.linspace(0, 1, 256))[:, :3] * 255
    shown = np.empty_like(frames)
    for frame, values, target in zip(frames, heatmap, shown, strict=True):
        size = (frame.shape[1], frame.shape[0])
        hot = np.clip(cv2.resize(values.astype(np.float32), size, interpolation=cv2.INTER_LINEAR), 0, 1)[..., None]
        dim = 0.8 * ((1 - _DESATURATION) * frame + _DESATURATION * (frame @ LUMA_WEIGHTS)[..., None])
        colour = table[(255 * hot[..., 0]).round().astype(int)]
        target[:] = np.clip((1 - _MAX_OPACITY * hot) * dim + _MAX_OPACITY * hot * colour, 0, 255).round()
    return shown


def interpolate_heatmaps(heatmaps: np.ndarray, frame_indices: Sequence[int]) -> np.ndarray:
    """Heat for every frame from the first to the last of the ascending `frame_indices`, linear between two of them."""
    every = np.arange(frame_indices[0], frame_indices[-1] + 1)
    place = np.interp(every, frame_indices, np.arange(len(frame_indices)))
    low = np.minimum(place.astype(int), len(heatmaps) - 1)
    high = np.minimum(low + 1, len(heatmaps) - 1)
    share = (place - low)[:, None, None]
    return (1 - share) * heatmaps[low] + share * heatmaps[high]


def filmstrip(frames: np.ndarray, heatmaps: Mapping[str, np.ndarray], *, frame_indices: Sequence[int]) -> Figure:
    """Some of the frames in a row, and below them the same frames under each named heat.

    frame_indices: of the frames in their video, written above them. At most eight frames, evenly spaced.
    """
    shown = np.unique(np.linspace(0, len(frames) - 1, _FRAMES_PER_STRIP).round().astype(int))
    height = frames.shape[1] / frames.shape[2]
    figure = Figure(figsize=(0.45 + 1.3 * len(shown), 0.3 + 1.3 * height * (1 + len(heatmaps))), facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1 + len(heatmaps), len(shown), squeeze=False)
    left, top = 0.4 / figure.get_figwidth(), 1 - 0.22 / figure.get_figheight()
    figure.subplots_adjust(left=left, right=0.998, bottom=0.004, top=top, wspace=0.03, hspace=0.03 / height)
    pictures = {"video": frames[shown]} | {
        name: overlay_heatmap(frames[shown], heat[shown]) for name, heat in heatmaps.items()
    }
    for line, (name, row) in zip(grid, pictures.items(), strict=True):
        line[0].set_ylabel(escape_mathtext(name), color=TEXT_COLOR, fontsize=9)
        for axes, picture in zip(line, row, strict=True):
            axes.imshow(picture, aspect="auto", interpolation="lanczos")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(GRAY)
            axes.spines[:].set_linewidth(0.5)
    for axes, place in zip(grid[0], shown, strict=True):
        axes.set_title(f"frame {frame_indices[place]}", color=TEXT_COLOR, fontsize=8, pad=3)
    return figure
