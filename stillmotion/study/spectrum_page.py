"""The page of `study spectrum`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillmotion.explain.figure import save_picture
from stillmotion.explain.projection import eigenvalue_plot, gain_plot
from stillmotion.report.blocks import Section, Table, Text, figures
from stillmotion.report.page import write_page

_CLAIM = (
    "A projection g of tokens is trained to bring corresponding patches together and to stay an isometry. Differences "
    "of corresponding patches have known variances σ. Optimal eigenvalues are sqrt(1 − σ/2λ), and zero beyond 2λ; for "
    "two layers the same holds of their product while tanh stays in its linear part."
)
_GAIN = (
    "Where all inter-video variances are the mean σ (τ), the margin D_inter − D_intra grows by Σ (τ − σ)(1 − σ/2λ) "
    "over σ ≤ 2λ. It is positive at every λ: both factors fall with σ, and the first sums to zero."
)


def spectrum_report(folder: Path, results: Mapping[str, Any], curve: Mapping[str, Sequence[float]]) -> Path:
    """Write `report.html`, and the eigenvalues as `spectrum.png`.

    curve: the predicted gain of the margin, by strength.
    """
    points, variances = results["points"], results["variances"]
    first = eigenvalue_plot(variances, points)
    second = gain_plot(points, curve)
    save_picture(first, folder / "spectrum.png", dpi=150)
    rows = [
        [
            "linear" if p["layers"] == 1 else "two layers",
            f"{p['strength']:g}",
            str(p["seed"]),
            f"{p['error']:.1e}",
            f"{p['gain']:.4f}",
            f"{p['predicted gain']:.4f}",
        ]
        for p in points
    ]
    header = ["projection", "λ / τ", "seed", "largest error of an eigenvalue", "Δ / τ", "predicted"]
    sections = [
        Section("Eigenvalues", [Text(_CLAIM), figures({"eigenvalues against variance": first})]),
        Section("Margin", [Text(_GAIN), figures({"margin against strength": second})]),
        Section("Figures", [Table(header, rows)]),
    ]
    return write_page(folder / "report.html", "The spectrum of a trained projection", sections)
