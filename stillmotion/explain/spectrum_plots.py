"""Eigenvalues of Koopman operators in the complex plane, and temporal similarity of frames (BOD-VCL, Eq. 26).

Shapes: N clips, T frames, D channels.
"""

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from stillmotion.functional import koopman
from stillmotion.functional.knn import l2_normalize
from stillmotion.report.plot_style import (
    GRAY,
    PALETTE,
    TEXT_COLOR,
    add_legend,
    assign_colors,
    escape_mathtext,
    new_axes,
)


def clip_eigenvalues(frames: np.ndarray, *, ridge: float = 1e-3) -> np.ndarray:
    """Compute the eigenvalues of each clip's operator, fitted to L2-normalized frames.

    Args:
        frames: Per-frame features (N, T, D).
        ridge: Regularization of the fit.

    Returns:
        Complex eigenvalues (N, T-1).
    """
    return koopman.eigenvalues(F.normalize(torch.from_numpy(frames), dim=-1), ridge=ridge).numpy()


def plot_eigenvalues(values: np.ndarray, *, radius: float, title: str = "", color: str = PALETTE[1]) -> Figure:
    """Plot eigenvalues in the complex plane, with the unit circle and the disc of radius ξ around 1.

    A value on the unit circle is a motion that neither grows nor decays, its angle the motion's speed; what lies
    within ξ of 1 hardly changes from frame to frame.

    Args:
        values: Complex eigenvalues of any shape.
        radius: Radius ξ.
        title: Title of the figure.
        color: Color of the points.
    """
    static_fraction = float((np.abs(values - 1) < radius).mean())
    figure, axes = new_axes(
        width=3.4, height=3.5, title=f"{title + ': ' if title else ''}{static_fraction:.0%} within ξ of 1"
    )
    draw_complex_plane(axes, radius=radius)
    axes.scatter(values.real.ravel(), values.imag.ravel(), s=7, color=color, alpha=0.45, linewidths=0, rasterized=True)
    figure.set_dpi(144)
    return figure


def draw_complex_plane(axes: Axes, *, radius: float) -> None:
    """Draw the unit circle and the disc around 1.

    Args:
        axes: The axes.
        radius: Radius of the disc.
    """
    axes.add_patch(Circle((0, 0), 1, fill=False, color=GRAY, linewidth=1))
    axes.add_patch(Circle((1, 0), radius, color=PALETTE[2], alpha=0.3, linewidth=0))
    axes.axhline(0, color=GRAY, linewidth=0.6)
    axes.axvline(0, color=GRAY, linewidth=0.6)
    axes.annotate("ξ", (1, radius), (0, 2), textcoords="offset points", ha="center", color=TEXT_COLOR, fontsize=9)
    axes.set(xlim=(-1.25, 1.35), ylim=(-1.3, 1.3), aspect="equal", xlabel="real", ylabel="imaginary")
    axes.grid(False)


def temporal_similarity(frames: np.ndarray) -> np.ndarray:
    """Compute the cosine between every two frames of clips (N, T, D), averaged over clips: (T, T) (Eq. 26)."""
    unit = l2_normalize(frames)
    return np.einsum("ntd,nsd->ts", unit, unit) / len(frames)


def similarity_by_lag(matrix: np.ndarray) -> np.ndarray:
    """Compute the mean of each superdiagonal of a similarity matrix (T, T), from lag 0 to T-1."""
    return np.array([np.diagonal(matrix, lag).mean() for lag in range(len(matrix))])


def plot_similarity_matrix(matrix: np.ndarray, *, title: str = "") -> Figure:
    """Plot a similarity matrix.

    Args:
        matrix: Similarities (T, T).
        title: Title of the figure.
    """
    figure, axes = new_axes(width=3.4, height=3.0, title=title)
    image = axes.imshow(matrix, cmap="viridis", interpolation="nearest")
    bar = figure.colorbar(image, ax=axes, shrink=0.85)
    bar.ax.tick_params(colors=TEXT_COLOR, labelsize=8)
    bar.outline.set_visible(False)
    axes.set(xlabel="frame", ylabel="frame")
    axes.grid(False)
    return figure


def plot_similarity_by_lag(matrices: Mapping[str, np.ndarray]) -> Figure:
    """Plot the similarity of two frames by the number of frames between them, a line for each named matrix (T, T)."""
    figure, axes = new_axes(width=3.4, height=3.0, title="mean cosine by lag")
    color = assign_colors(list(matrices))
    for name, matrix in matrices.items():
        axes.plot(similarity_by_lag(matrix), ".-", color=color[name], label=escape_mathtext(name))
    axes.set(xlabel="lag in frames", ylabel="mean cosine")
    if len(matrices) > 1:
        add_legend(axes)
    return figure
