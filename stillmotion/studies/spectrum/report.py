"""Plots and HTML report of the spectrum study: predicted and measured eigenvalues and margins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from stillmotion.report.page import write_page
from stillmotion.report.page_blocks import Section, Table, Text, figure_block
from stillmotion.report.plot_style import PALETTE, TEXT_COLOR, add_legend, new_axes, save_figure

_MARKERS = {1: ("o", PALETTE[0], "linear"), 2: ("x", PALETTE[1], "two layers")}


def plot_eigenvalue_shrinkage(variances: Sequence[float], points: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot μ against σ/2λ, so that all values of λ lie on one curve (Theorem 1).

    Args:
        variances: Variances σ.
        points: Measured points.
    """
    figure, axes = new_axes(width=5.2, height=3.4, title="Theorem 1: shrinkage of a direction")
    x_max = max(max(variances) / (2 * p["lambda"]) for p in points)
    x = np.linspace(0, x_max, 400)
    axes.plot(x, np.sqrt(np.clip(1 - x, 0, None)), color=TEXT_COLOR, linewidth=1.2, label="sqrt(1 − σ/2λ)")
    for layers, (marker, color, name) in _MARKERS.items():
        chosen = [p for p in points if p["layers"] == layers]
        ratios = np.concatenate([np.array(variances) / (2 * p["lambda"]) for p in chosen])
        eigenvalues = np.concatenate([p["eigenvalues"] for p in chosen])
        axes.plot(ratios, eigenvalues, marker, color=color, markersize=4, alpha=0.8, label=name, fillstyle="none")
    axes.set_xlabel("σ / 2λ")
    axes.set_ylabel("eigenvalue μ")
    add_legend(axes)
    return figure


def plot_margin_growth(points: Sequence[Mapping[str, Any]], curve: Mapping[str, Sequence[float]]) -> Figure:
    """Plot the growth Δ of the margin against λ over the mean variance (Theorem 2).

    Args:
        points: Measured points.
        curve: Predicted "margin_gain" by "lambda".
    """
    figure, axes = new_axes(width=5.2, height=3.4, title="Theorem 2: growth of the margin")
    axes.plot(curve["lambda"], curve["margin_gain"], color=TEXT_COLOR, linewidth=1.2, label="predicted")
    axes.axvline(0.5, color=PALETTE[4], linewidth=0.9, linestyle="--", label="λ = τ/2")
    for layers, (marker, color, name) in _MARKERS.items():
        chosen = [p for p in points if p["layers"] == layers]
        lambdas, gains = [p["lambda"] for p in chosen], [p["margin_gain"] for p in chosen]
        axes.plot(lambdas, gains, marker, color=color, markersize=5, alpha=0.8, label=name, fillstyle="none")
    axes.set_xlabel("λ / τ")
    axes.set_ylabel("Δ / τ")
    add_legend(axes)
    return figure


_THEOREM_1 = (
    "A projection g of tokens is trained to bring corresponding patches together and to stay an isometry. Differences "
    "of corresponding patches have known variances σ. Optimal eigenvalues are sqrt(1 − σ/2λ), and zero beyond 2λ; for "
    "two layers the same holds of their product while tanh stays in its linear part."
)
_THEOREM_2 = (
    "Where all inter-video variances are the mean σ (τ), the margin D_inter − D_intra grows by Σ (τ − σ)(1 − σ/2λ) "
    "over σ ≤ 2λ. It is positive at every λ: both factors fall with σ, and the first sums to zero."
)


def write_spectrum_page(output_dir: Path, results: Mapping[str, Any], curve: Mapping[str, Sequence[float]]) -> Path:
    """Write `report.html` and `spectrum.png`.

    Args:
        output_dir: Folder of the study.
        results: Its results.
        curve: Predicted "margin_gain" by "lambda".

    Returns:
        The path of the report.
    """
    points, variances = results["points"], results["variances"]
    first = plot_eigenvalue_shrinkage(variances, points)
    second = plot_margin_growth(points, curve)
    save_figure(first, output_dir / "spectrum.png", dpi=150)
    rows = [
        [
            "linear" if p["layers"] == 1 else "two layers",
            f"{p['lambda']:g}",
            str(p["seed"]),
            f"{p['max_eigenvalue_error']:.1e}",
            f"{p['margin_gain']:.4f}",
            f"{p['predicted_margin_gain']:.4f}",
        ]
        for p in points
    ]
    header = ["projection", "λ / τ", "seed", "largest error of an eigenvalue", "Δ / τ", "predicted"]
    sections = [
        Section("Eigenvalues", [Text(_THEOREM_1), figure_block({"eigenvalues against variance": first})]),
        Section("Margin", [Text(_THEOREM_2), figure_block({"margin against λ": second})]),
        Section("Measurements", [Table(header, rows)]),
    ]
    return write_page(output_dir / "report.html", "The spectrum of a trained projection", sections)
