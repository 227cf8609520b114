"""Heat maps over frames, and filmstrips.

Shapes: T frames of H×W pixels; heat maps are (T, H, W) or coarser, within [0, 1].
"""

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
_MAX_OPACITY = 0.75  # at the largest value
_DESATURATION = 0.65  # of the frames, so that colors are those of the heat map
_FRAMES_PER_STRIP = 8


def normalize_heatmap(heatmap: np.ndarray, *, signed: bool = False) -> np.ndarray:
    """Scale a heat map to [0, 1].

    Args:
        heatmap: Values of any shape; its 99th percentile becomes 1, so that an outlier hides nothing.
        signed: Whether the 1st percentile becomes 0, instead of 0 itself.

    Returns:
        The scaled map; zeros if all values are equal.
    """
    values = heatmap.astype(np.float64)
    low, high = np.percentile(values, [1, 99])
    if high <= low:  # all of it at a few positions
        low, high = values.min(), values.max()
    low = low if signed else 0.0
    if not high > low + 1e-9 * abs(low):
        return np.zeros_like(values)
    return np.clip((values - low) / (high - low), 0, 1)


def overlay_heatmap(frames: np.ndarray, heatmap: np.ndarray) -> np.ndarray:
    """Draw heat maps over frames; frames are dim and nearly gray where the map is 0.

    Args:
        frames: Frames, uint8 (T, H, W, 3).
        heatmap: Heat maps (T, h, w).

    Returns:
        Frames, uint8 (T, H, W, 3).
    """
    if len(frames) != len(heatmap):
        raise StillmotionError(f"{len(frames)} frames but {len(heatmap)} heat maps; give one for each frame")
    table = matplotlib.colormaps[_COLORMAP](np.linspace(0, 1, 256))[:, :3] * 255
    overlaid = np.empty_like(frames)
    for frame, values, target in zip(frames, heatmap, overlaid, strict=True):
        size = (frame.shape[1], frame.shape[0])
        hot = np.clip(cv2.resize(values.astype(np.float32), size, interpolation=cv2.INTER_LINEAR), 0, 1)[..., None]
        dim = 0.8 * ((1 - _DESATURATION) * frame + _DESATURATION * (frame @ LUMA_WEIGHTS)[..., None])
        color = table[(255 * hot[..., 0]).round().astype(int)]
        target[:] = np.clip((1 - _MAX_OPACITY * hot) * dim + _MAX_OPACITY * hot * color, 0, 255).round()
    return overlaid


def interpolate_heatmaps(heatmaps: np.ndarray, frame_indices: Sequence[int]) -> np.ndarray:
    """Interpolate heat maps linearly to every frame from the first to the last of theirs.

    Args:
        heatmaps: Heat maps (T, H, W).
        frame_indices: Their frames, ascending.
    """
    all_indices = np.arange(frame_indices[0], frame_indices[-1] + 1)
    position = np.interp(all_indices, frame_indices, np.arange(len(frame_indices)))
    low = np.minimum(position.astype(int), len(heatmaps) - 1)
    high = np.minimum(low + 1, len(heatmaps) - 1)
    weight = (position - low)[:, None, None]
    return (1 - weight) * heatmaps[low] + weight * heatmaps[high]


def filmstrip(frames: np.ndarray, heatmaps: Mapping[str, np.ndarray], *, frame_indices: Sequence[int]) -> Figure:
    """Plot up to eight evenly spaced frames in a row, and below them the same frames under each heat map.

    Args:
        frames: Frames, uint8 (T, H, W, 3).
        heatmaps: Heat maps (T, H, W) by name.
        frame_indices: Indices of the frames in their video, written above them.
    """
    selected = np.unique(np.linspace(0, len(frames) - 1, _FRAMES_PER_STRIP).round().astype(int))
    height = frames.shape[1] / frames.shape[2]
    figure = Figure(figsize=(0.45 + 1.3 * len(selected), 0.3 + 1.3 * height * (1 + len(heatmaps))), facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1 + len(heatmaps), len(selected), squeeze=False)
    left, top = 0.4 / figure.get_figwidth(), 1 - 0.22 / figure.get_figheight()
    figure.subplots_adjust(left=left, right=0.998, bottom=0.004, top=top, wspace=0.03, hspace=0.03 / height)
    rows = {"video": frames[selected]} | {
        name: overlay_heatmap(frames[selected], heatmap[selected]) for name, heatmap in heatmaps.items()
    }
    for axes_row, (name, images) in zip(grid, rows.items(), strict=True):
        axes_row[0].set_ylabel(escape_mathtext(name), color=TEXT_COLOR, fontsize=9)
        for axes, image in zip(axes_row, images, strict=True):
            axes.imshow(image, aspect="auto", interpolation="lanczos")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(GRAY)
            axes.spines[:].set_linewidth(0.5)
    for axes, i in zip(grid[0], selected, strict=True):
        axes.set_title(f"frame {frame_indices[i]}", color=TEXT_COLOR, fontsize=8, pad=3)
    return figure
