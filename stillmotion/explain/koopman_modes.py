"""Eigenvalues and amplitudes of the modes of one clip's Koopman operator, with two plots (BOD-VCL, Figure 4).

Left eigenvectors φ of K = F B⁺ are φ = B L⁻ᵀ w, with w a left eigenvector of the n×n matrix of
`functional/koopman.py`, so that an amplitude φᵀx_t is computed from the Gram matrix.

Shapes: T frames, D channels, n = T-1 modes.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stillmotion.errors import StillmotionError
from stillmotion.explain.spectrum_plots import draw_complex_plane
from stillmotion.functional.knn import l2_normalize
from stillmotion.report.plot_style import GRAY, PALETTE, TEXT_COLOR, add_legend, new_axes

_NUM_PLOTTED = 5
_EPS = 1e-60
_IMAG_TOLERANCE = 1e-9  # an eigenvalue with a smaller imaginary part has no conjugate


@dataclass(frozen=True)
class KoopmanModes:
    """Eigenvalues (n,), nearest to 1 first, and what each mode's amplitude is in every frame (n, T), both complex."""

    eigenvalues: np.ndarray
    amplitudes: np.ndarray

    def is_static(self, radius: float) -> np.ndarray:
        """Return which modes (n,) have eigenvalues within this radius of 1."""
        return np.abs(self.eigenvalues - 1) < radius

    def strongest(self, count: int) -> np.ndarray:
        """Return the indices of the modes of largest mean amplitude; one stands for a conjugate pair."""
        strength = np.where(self.eigenvalues.imag < -_IMAG_TOLERANCE, -1.0, np.abs(self.amplitudes).mean(1))
        return np.argsort(-strength, kind="stable")[: min(count, int((strength >= 0).sum()))]


def koopman_modes(frames: np.ndarray, *, ridge: float = 1e-3) -> KoopmanModes:
    """Compute the modes of the operator fitted to L2-normalized frames.

    Eigenvectors have unit length and the phase that makes the first frame's amplitude real and positive; without a
    ridge, a mode's amplitude is multiplied by its eigenvalue from each frame to the next.

    Args:
        frames: Per-frame features (T, D), at least 3 frames.
        ridge: Regularization of the fit, relative to the mean squared norm.
    """
    if frames.ndim != 2 or len(frames) < 3:
        raise StillmotionError(f"frames have shape {frames.shape}; modes need (T, D) with at least 3 frames")
    x = l2_normalize(frames.astype(np.float64), eps=_EPS)
    gram = x @ x.T
    n = len(x) - 1
    gram /= max(np.trace(gram[:-1, :-1]) / n, _EPS)
    factor = np.linalg.cholesky(gram[:-1, :-1] + ridge * np.eye(n))
    coordinates = np.linalg.solve(factor, gram[:-1])  # L⁻¹ BᵀX
    values, left = np.linalg.eig(np.linalg.solve(factor, coordinates[:, 1:].T))  # of the transposed operator
    amplitudes = left.T @ coordinates
    first = amplitudes[:, :1]
    amplitudes = amplitudes * np.where(first == 0, 1, np.conj(first) / np.maximum(np.abs(first), _EPS))
    order = np.argsort(np.abs(values - 1), kind="stable")
    return KoopmanModes(values[order].astype(complex), amplitudes[order].astype(complex))


def plot_mode_eigenvalues(modes: KoopmanModes, *, radius: float) -> Figure:
    """Plot the eigenvalues of one clip: the strongest modes in the colors of `plot_mode_amplitudes`, the others gray.

    Args:
        modes: Modes of the clip.
        radius: Radius of static eigenvalues around 1.
    """
    num_static = int(modes.is_static(radius).sum())
    count = len(modes.eigenvalues)
    figure, axes = new_axes(width=3.4, height=3.5, title=f"{num_static} of {count} eigenvalues within ξ of 1")
    draw_complex_plane(axes, radius=radius)
    color = np.full(count, GRAY, dtype=object)
    for mode, name in zip(modes.strongest(_NUM_PLOTTED), PALETTE, strict=False):
        # A conjugate pair has one color: it is one motion.
        color[np.abs(modes.eigenvalues - modes.eigenvalues[mode]) < _IMAG_TOLERANCE] = name
        color[np.abs(modes.eigenvalues - np.conj(modes.eigenvalues[mode])) < _IMAG_TOLERANCE] = name
    axes.scatter(
        modes.eigenvalues.real,
        modes.eigenvalues.imag,
        s=34,
        color=color.tolist(),
        edgecolors=TEXT_COLOR,
        linewidths=0.5,
    )
    return figure


def plot_mode_amplitudes(modes: KoopmanModes, *, radius: float) -> Figure:
    """Plot the real part of the strongest modes' amplitudes over time; static modes are drawn thick.

    Args:
        modes: Modes of the clip.
        radius: Radius of static eigenvalues around 1.
    """
    figure, axes = new_axes(width=4.2, height=3.5, title="amplitudes of the strongest modes")
    static = modes.is_static(radius)
    axes.axhline(0, color=GRAY, linewidth=0.6)
    for mode, color in zip(modes.strongest(_NUM_PLOTTED), PALETTE, strict=False):
        width = 2.6 if static[mode] else 1.3
        label = f"{_format_eigenvalue(modes.eigenvalues[mode])}{', static' if static[mode] else ''}"
        axes.plot(modes.amplitudes[mode].real, ".-", color=color, linewidth=width, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="frame", ylabel="amplitude")
    add_legend(axes)
    return figure


def _format_eigenvalue(value: complex) -> str:
    return (
        f"λ = {value.real:.2f}"
        if abs(value.imag) < _IMAG_TOLERANCE
        else f"λ = {value.real:.2f} ± {abs(value.imag):.2f}i"
    )
