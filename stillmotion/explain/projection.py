"""The eigenvalues and the margin that the transfer paper's theorems foretell, beside those of trained projections."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stillmotion.explain.figure import INK, PALETTE, legend, new_axes

_MARKS = {1: ("o", PALETTE[0], "linear"), 2: ("x", PALETTE[1], "two layers")}


def eigenvalue_plot(variances: Sequence[float], points: Sequence[Mapping[str, Any]]) -> Figure:
    """μ against σ/2λ, so that every strength lies on one curve (Theorem 1)."""
    figure, axes = new_axes(width=5.2, height=3.4, title="Theorem 1: how far a direction is shrunk")
    most = max(max(variances) / (2 * p["strength"]) for p in points)
    x = np.linspace(0, most, 400)
    axes.plot(x, np.sqrt(np.clip(1 - x, 0, None)), color=INK, linewidth=1.2, label="sqrt(1 − σ/2λ)")
    for layers, (mark, colour, name) in _MARKS.items():
        chosen = [p for p in points if p["layers"] == layers]
        at = np.concatenate([np.array(variances) / (2 * p["strength"]) for p in chosen])
        seen = np.concatenate([p["eigenvalues"] for p in chosen])
        axes.plot(at, seen, mark, color=colour, markersize=4, alpha=0.8, label=name, fillstyle="none")
    axes.set_xlabel("σ / 2λ")
    axes.set_ylabel("eigenvalue μ")
    legend(axes)
    return figure


def gain_plot(points: Sequence[Mapping[str, Any]], curve: Mapping[str, Sequence[float]]) -> Figure:
    """Δ of the margin against λ over the mean variance (Theorem 2); curve: "strength" and "gain"."""
    figure, axes = new_axes(width=5.2, height=3.4, title="Theorem 2: how far the margin grows")
    axes.plot(curve["strength"], curve["gain"], color=INK, linewidth=1.2, label="predicted")
    axes.axvline(0.5, color=PALETTE[4], linewidth=0.9, linestyle="--", label="λ = τ/2")
    for layers, (mark, colour, name) in _MARKS.items():
        chosen = [p for p in points if p["layers"] == layers]
        places, gains = [p["strength"] for p in chosen], [p["gain"] for p in chosen]
        axes.plot(places, gains, mark, color=colour, markersize=5, alpha=0.8, label=name, fillstyle="none")
    axes.set_xlabel("λ / τ")
    axes.set_ylabel("Δ / τ")
    legend(axes)
    return figure
