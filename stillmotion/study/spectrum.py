"""`stillmotion study spectrum`: the transfer paper's two theorems on data whose covariances are known.

Theorem 1: a projection that minimises M = ½E‖g(z1) − g(z2)‖² + λ/2·E‖J Jᵀ − I‖² shrinks each direction to
sqrt(1 − σ/2λ), and to 0 beyond σ = 2λ. Theorem 2: the margin D_inter − D_intra grows by Σ (τ − σ)(1 − σ/2λ) over
σ ≤ 2λ, where every inter-video variance is τ, the mean σ. The paper writes a factor γ into the margin but its proof
needs γ = 1, which is what is computed here.
Shapes: n pairs, d directions.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.files import made
from stillmotion.study.spectrum_page import spectrum_report

Layers = Literal[1, 2]
LAYERS: tuple[Layers, ...] = (1, 2)
RESULTS = "results.json"
_BEYOND = 1.15  # how far curves are drawn past the largest strength
_SMALL = 0.2  # what the first of two layers starts at, over a random matrix


class Pairs(NamedTuple):
    """Corresponding patches z1 and z2 (n, d), the variances σ (d,) of their difference, and its directions (d, d)."""

    first: Tensor
    second: Tensor
    variances: Tensor
    basis: Tensor


def make_pairs(variances: Tensor, *, pairs: int, seed: int = 0) -> Pairs:
    """Pairs whose differences have exactly these variances along random directions, in float64."""
    d = len(variances)
    if pairs <= d:
        raise StillmotionError(f"{pairs} pairs cannot show {d} variances; give more pairs than directions")
    draw = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(d, d, generator=draw, dtype=torch.float64))[0]
    noise = torch.randn(pairs, d, generator=draw, dtype=torch.float64)
    white = torch.linalg.qr(noise)[0] * math.sqrt(pairs)  # the sample's covariance is the identity, not nearly so
    difference = white * variances.double().sqrt() @ basis.T
    middle = torch.randn(pairs, d, generator=draw, dtype=torch.float64) * variances.double().mean().sqrt()
    return Pairs(middle + difference / 2, middle - difference / 2, variances.double(), basis)


def predicted(variances: Tensor, strength: float) -> Tensor:
    """The optimal eigenvalues at λ (Eq. 6 and 7)."""
    return (1 - variances / (2 * strength)).clamp_min(0).sqrt()


def predicted_gain(variances: Tensor, strength: float) -> float:
    """Δ, by how much the margin grows (Eq. 28)."""
    return float(((variances.mean() - variances) * (1 - variances / (2 * strength)).clamp_min(0)).sum())


def objective(weights: Sequence[Tensor], pairs: Pairs, strength: float) -> Tensor:
    """M over λ of a linear or two-layer projection (Eq. 4 and 5).

    weights: W, or W1 and W2 of g(z) = W2·tanh(W1·z).
    """
    eye = torch.eye(len(pairs.variances), dtype=pairs.first.dtype)
    if len(weights) == 1:
        moved = (pairs.first - pairs.second) @ weights[0].T
        kept = (weights[0] @ weights[0].T - eye).square().sum()
    else:
        inner = [torch.tanh(z @ weights[0].T) for z in pairs[:2]]
        moved = (inner[0] - inner[1]) @ weights[1].T
        slopes = 1 - inner[0].square()
        jacobians = weights[1] * slopes[:, None, :] @ weights[0]
        kept = (jacobians @ jacobians.transpose(1, 2) - eye).square().sum((1, 2)).mean()
    return 0.5 * moved.square().sum(1).mean() / strength + 0.5 * kept


def train_projection(pairs: Pairs, strength: float, *, layers: Layers = 1, seed: int = 0, steps: int = 200) -> Tensor:
    """The linear map (d, d) that a projection trained from random weights is; of two layers, W2·W1.

    The theorem takes the eigenvalues of W1 to be small: two layers start that way, and tanh stays in its linear part.
    """
    d = len(pairs.variances)
    draw = torch.Generator().manual_seed(seed)
    weights = [torch.randn(d, d, generator=draw, dtype=torch.float64) / math.sqrt(d) for _ in range(layers)]
    if layers == 2:
        weights = [_SMALL * weights[0], torch.linalg.qr(weights[1])[0].contiguous() / _SMALL]
    for weight in weights:
        weight.requires_grad_()
    solver = torch.optim.LBFGS(
        weights,
        max_iter=steps,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-12,
        tolerance_change=0,
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = objective(weights, pairs, strength)
        loss.backward()
        return loss

    solver.step(closure)
    weights = [weight.detach() for weight in weights]
    return weights[0] if layers == 1 else weights[1] @ weights[0]


def shrinkage(projection: Tensor, basis: Tensor) -> Tensor:
    """How far the projection shrinks each direction of a basis, ‖W u‖: its eigenvalues where it is symmetric."""
    return (projection @ basis).norm(dim=0)


def measured_gain(projection: Tensor, pairs: Pairs, *, seed: int = 0) -> float:
    """By how much the margin of Definition 5 grows with γ = 1, on videos whose means vary by τ in every direction."""
    d, n = len(pairs.variances), len(pairs.first)
    draw = torch.Generator().manual_seed(seed + 1)
    white = torch.linalg.qr(torch.randn(n, d, generator=draw, dtype=torch.float64))[0] * math.sqrt(n)
    between = white * pairs.variances.mean().sqrt()  # differences of two videos' means
    within = pairs.first - pairs.second

    def margin(project: Callable[[Tensor], Tensor]) -> Tensor:
        return project(between).square().sum(1).mean() - project(within).square().sum(1).mean()

    return float(margin(lambda z: z @ projection.T) - margin(lambda z: z))


@dataclass(frozen=True)
class Spectrum:
    """What the study draws.

    Attributes:
        directions: d.
        pairs: n.
        scale: the mean variance of differences; small ones keep tanh in its linear part.
        strengths: values of λ, in units of the mean variance.
        seeds: data and starts of each.
    """

    directions: int = 16
    pairs: int = 200
    scale: float = 1e-3
    strengths: tuple[float, ...] = (0.3, 0.6, 1.2)
    seeds: int = 3


def spectrum(
    out: str | Path, study: Spectrum | None = None, *, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Trains projections, compares them with both theorems, and writes results.json, spectrum.png and report.html."""
    study = study or Spectrum()
    if study.directions < 2 or study.seeds < 1 or not study.strengths or min(study.strengths) <= 0:
        raise StillmotionError("a spectrum needs at least 2 directions, a seed, and positive strengths")
    folder = made(out)
    variances = study.scale * torch.linspace(0.05, 1.95, study.directions, dtype=torch.float64)
    points, total = [], 2 * study.seeds * len(study.strengths)
    for strength in study.strengths:
        for layers in LAYERS:
            for seed in range(study.seeds):
                pairs = make_pairs(variances, pairs=study.pairs, seed=seed)
                trained = train_projection(pairs, strength * study.scale, layers=layers, seed=seed)
                found = shrinkage(trained, pairs.basis)
                wanted = predicted(variances, strength * study.scale)
                points.append(
                    {
                        "layers": layers,
                        "strength": strength,
                        "seed": seed,
                        "eigenvalues": found.tolist(),
                        "predicted": wanted.tolist(),
                        "error": float((found - wanted).abs().max()),
                        "gain": measured_gain(trained, pairs, seed=seed) / study.scale,
                        "predicted gain": predicted_gain(variances, strength * study.scale) / study.scale,
                    }
                )
                if progress is not None:
                    progress(len(points), total)
    results = {"study": asdict(study), "variances": (variances / study.scale).tolist(), "points": points}
    (folder / RESULTS).write_text(json.dumps(results, indent=1))
    most = _BEYOND * max(study.strengths)
    grid = torch.linspace(0.02, most, 200, dtype=torch.float64).tolist()
    curve = {"strength": grid, "gain": [predicted_gain(variances / study.scale, strength) for strength in grid]}
    spectrum_report(folder, results, curve)
    return results


def result_lines(results: Mapping[str, Any]) -> list[str]:
    """How far the theorems hold, as lines for a terminal."""
    lines = []
    for layers, name in ((1, "linear"), (2, "two layers")):
        chosen = [p for p in results["points"] if p["layers"] == layers]
        error = max(p["error"] for p in chosen)
        gain = max(abs(p["gain"] - p["predicted gain"]) for p in chosen)
        lines.append(f"{name:<12} largest error of an eigenvalue {error:.1e}, of the margin's growth {gain:.1e} τ")
    return lines
