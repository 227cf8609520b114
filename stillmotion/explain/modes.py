"""The modes of one clip's Koopman operator: where their eigenvalues lie and how they run in time (BOD-VCL, Figure 4).

Left eigenvectors φ of K = F B⁺ are φ = B L⁻ᵀ w, with w a left eigenvector of the n×n matrix of
`functional/koopman.py`, so that an amplitude φᵀx_t is read off the Gram matrix like everything else.

Shapes: T frames, D channels, n = T-1 modes.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from stillmotion.errors import StillmotionError
from stillmotion.explain.figure import GREY, INK, PALETTE, legend, new_axes
from stillmotion.explain.spectrum import draw_plane

_SHOWN = 5
_SMALLEST = 1e-60
_REAL = 1e-9  # an eigenvalue with a smaller imaginary part has no conjugate


@dataclass(frozen=True)
class Modes:
    """Eigenvalues (n,), nearest to 1 first, and what each mode's amplitude is in every frame (n, T), both complex."""

    values: np.ndarray
    amplitudes: np.ndarray

    def static(self, radius: float) -> np.ndarray:
        """Which modes (n,) lie within this radius of 1."""
        return np.abs(self.values - 1) < radius

    def strongest(self, count: int) -> np.ndarray:
        """The numbers of the modes of largest mean amplitude; one stands for itself and its conjugate."""
        strength = np.where(self.values.imag < -_REAL, -1.0, np.abs(self.amplitudes).mean(1))
        return np.argsort(-strength, kind="stable")[: min(count, int((strength >= 0).sum()))]


def modes(frames: np.ndarray, *, ridge: float = 1e-3) -> Modes:
    """The modes of the operator fitted to L2-normalised frames (T, D).

    Eigenvectors have unit length and the phase that makes the first frame's amplitude real and positive; without a
    ridge, a mode's amplitude is multiplied by its eigenvalue from each frame to the next.
    """
    if frames.ndim != 2 or len(frames) < 3:
        raise StillmotionError(f"frames have shape {frames.shape}; modes need (frames, channels), 3 frames or more")
    x = frames.astype(np.float64)
    x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), _SMALLEST)
    gram = x @ x.T
    n = len(x) - 1
    gram /= max(np.trace(gram[:-1, :-1]) / n, _SMALLEST)
    factor = np.linalg.cholesky(gram[:-1, :-1] + ridge * np.eye(n))
    coordinates = np.linalg.solve(factor, gram[:-1])  # L⁻¹ BᵀX
    values, left = np.linalg.eig(np.linalg.solve(factor, coordinates[:, 1:].T))  # of the transposed operator
    amplitudes = left.T @ coordinates
    first = amplitudes[:, :1]
    amplitudes = amplitudes * np.where(first == 0, 1, np.conj(first) / np.maximum(np.abs(first), _SMALLEST))
    order = np.argsort(np.abs(values - 1), kind="stable")
    return Modes(values[order].astype(complex), amplitudes[order].astype(complex))


def mode_plane(found: Modes, *, radius: float) -> Figure:
    """The eigenvalues of one clip: the strongest modes in the colours of `mode_amplitudes`, the others grey."""
    inside = int(found.static(radius).sum())
    count = len(found.values)
    figure, axes = new_axes(width=3.4, height=3.5, title=f"{inside} of {count} eigenvalues within ξ of 1")
    draw_plane(axes, radius=radius)
    colour = np.full(count, GREY, dtype=object)
    for number, name in zip(found.strongest(_SHOWN), PALETTE, strict=False):
        # A conjugate pair has one colour: it is one motion.
        colour[np.abs(found.values - found.values[number]) < _REAL] = name
        colour[np.abs(found.values - np.conj(found.values[number])) < _REAL] = name
    axes.scatter(found.values.real, found.values.imag, s=34, color=colour.tolist(), edgecolors=INK, linewidths=0.5)
    return figure


def mode_amplitudes(found: Modes, *, radius: float) -> Figure:
    """The real part of the strongest modes' amplitudes over time; those within the radius are drawn thick."""
    figure, axes = new_axes(width=4.2, height=3.5, title="amplitudes of the strongest modes")
    static = found.static(radius)
    axes.axhline(0, color=GREY, linewidth=0.6)
    for number, colour in zip(found.strongest(_SHOWN), PALETTE, strict=False):
        thick = 2.6 if static[number] else 1.3
        label = f"{_text(found.values[number])}{', static' if static[number] else ''}"
        axes.plot(found.amplitudes[number].real, ".-", color=colour, linewidth=thick, label=label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="frame", ylabel="amplitude")
    legend(axes)
    return figure


def _text(value: complex) -> str:
    return f"λ = {value.real:.2f}" if abs(value.imag) < _REAL else f"λ = {value.real:.2f} ± {abs(value.imag):.2f}i"
