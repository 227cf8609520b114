"""`study spectrum`: the transfer paper's two theorems on data with known covariances.

Theorem 1: a projection that minimises M = ½E‖g(z1) − g(z2)‖² + λ/2·E‖J Jᵀ − I‖² shrinks each direction to
sqrt(1 − σ/2λ), and to 0 beyond σ = 2λ. Theorem 2: the margin D_inter − D_intra grows by Σ (τ − σ)(1 − σ/2λ) over
σ ≤ 2λ, where every inter-video variance is τ, the mean σ. The paper writes a factor γ into the margin but its proof
needs γ = 1, which is what is computed here.
Shapes: n pairs, d directions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from stillmotion.errors import StillmotionError
from stillmotion.studies.spectrum.report import write_spectrum_page
from stillmotion.utils.files import ensure_dir, write_json
from stillmotion.utils.progress import report_progress

NumLayers = Literal[1, 2]
NUM_LAYERS: tuple[NumLayers, ...] = (1, 2)
RESULTS_FILE = "results.json"
_CURVE_MARGIN = 1.15  # how far curves are drawn past the largest strength
_FIRST_LAYER_SCALE = 0.2  # what the first of two layers starts at, over a random matrix


class PatchPairs(NamedTuple):
    """Pairs of corresponding patches.

    Attributes:
        first: Patches z1 (n, d).
        second: Patches z2 (n, d).
        variances: Variances σ (d,) of their difference.
        basis: Its principal directions (d, d).
    """

    first: Tensor
    second: Tensor
    variances: Tensor
    basis: Tensor


def sample_pairs(variances: Tensor, *, num_pairs: int, seed: int = 0) -> PatchPairs:
    """Sample pairs whose differences have exactly these variances along random directions, in float64.

    Args:
        variances: Variances (d,).
        num_pairs: Number of pairs, n > d.
        seed: Seed.
    """
    d = len(variances)
    if num_pairs <= d:
        raise StillmotionError(f"{num_pairs} pairs cannot show {d} variances; give more pairs than directions")
    draw = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(d, d, generator=draw, dtype=torch.float64))[0]
    noise = torch.randn(num_pairs, d, generator=draw, dtype=torch.float64)
    white = torch.linalg.qr(noise)[0] * math.sqrt(num_pairs)  # the sample's covariance is the identity, not nearly so
    difference = white * variances.double().sqrt() @ basis.T
    middle = torch.randn(num_pairs, d, generator=draw, dtype=torch.float64) * variances.double().mean().sqrt()
    return PatchPairs(middle + difference / 2, middle - difference / 2, variances.double(), basis)


def predicted_eigenvalues(variances: Tensor, strength: float) -> Tensor:
    """Return the optimal eigenvalues (Eq. 6 and 7).

    Args:
        variances: Variances (d,).
        strength: λ.
    """
    return (1 - variances / (2 * strength)).clamp_min(0).sqrt()


def predicted_margin_gain(variances: Tensor, strength: float) -> float:
    """Return Δ, the predicted growth of the margin (Eq. 28).

    Args:
        variances: Variances (d,).
        strength: λ.
    """
    return float(((variances.mean() - variances) * (1 - variances / (2 * strength)).clamp_min(0)).sum())


def transfer_objective(weights: Sequence[Tensor], pairs: PatchPairs, strength: float) -> Tensor:
    """Return M / λ of a linear or two-layer projection (Eq. 4 and 5).

    Args:
        weights: W, or W1 and W2 of g(z) = W2·tanh(W1·z).
        pairs: Patch pairs.
        strength: λ.
    """
    eye = torch.eye(len(pairs.variances), dtype=pairs.first.dtype)
    if len(weights) == 1:
        moved = (pairs.first - pairs.second) @ weights[0].T
        penalty = (weights[0] @ weights[0].T - eye).square().sum()
    else:
        inner = [torch.tanh(z @ weights[0].T) for z in pairs[:2]]
        moved = (inner[0] - inner[1]) @ weights[1].T
        slopes = 1 - inner[0].square()
        jacobians = weights[1] * slopes[:, None, :] @ weights[0]
        penalty = (jacobians @ jacobians.transpose(1, 2) - eye).square().sum((1, 2)).mean()
    return 0.5 * moved.square().sum(1).mean() / strength + 0.5 * penalty


def train_projection(
    pairs: PatchPairs, strength: float, *, num_layers: NumLayers = 1, seed: int = 0, max_steps: int = 200
) -> Tensor:
    """Train a projection from random weights.

    The theorem assumes small eigenvalues of W1: two layers start that way, and tanh stays in its linear range.

    Args:
        pairs: Patch pairs.
        strength: λ.
        num_layers: 1 for W, 2 for W2·tanh(W1·z).
        seed: Seed of the weights.
        max_steps: Iterations of L-BFGS.

    Returns:
        The linear map (d, d); of two layers, W2·W1.
    """
    d = len(pairs.variances)
    draw = torch.Generator().manual_seed(seed)
    weights = [torch.randn(d, d, generator=draw, dtype=torch.float64) / math.sqrt(d) for _ in range(num_layers)]
    if num_layers == 2:
        weights = [_FIRST_LAYER_SCALE * weights[0], torch.linalg.qr(weights[1])[0].contiguous() / _FIRST_LAYER_SCALE]
    for weight in weights:
        weight.requires_grad_()
    solver = torch.optim.LBFGS(
        weights,
        max_iter=max_steps,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-12,
        tolerance_change=0,
    )

    def closure() -> Tensor:
        solver.zero_grad()
        loss = transfer_objective(weights, pairs, strength)
        loss.backward()
        return loss

    solver.step(closure)
    weights = [weight.detach() for weight in weights]
    return weights[0] if num_layers == 1 else weights[1] @ weights[0]


def shrinkage_factors(projection: Tensor, basis: Tensor) -> Tensor:
    """Return ‖W u‖ for each direction u of a basis: the eigenvalues of a symmetric projection.

    Args:
        projection: W (d, d).
        basis: Directions (d, d), one per column.
    """
    return (projection @ basis).norm(dim=0)


def measured_margin_gain(projection: Tensor, pairs: PatchPairs, *, seed: int = 0) -> float:
    """Return the growth of the margin of Definition 5 with γ = 1, on videos whose means vary by τ in every direction.

    Args:
        projection: W (d, d).
        pairs: Patch pairs.
        seed: Seed of the videos' means.
    """
    d, n = len(pairs.variances), len(pairs.first)
    draw = torch.Generator().manual_seed(seed + 1)
    white = torch.linalg.qr(torch.randn(n, d, generator=draw, dtype=torch.float64))[0] * math.sqrt(n)
    between = white * pairs.variances.mean().sqrt()  # differences of two videos' means
    within = pairs.first - pairs.second

    def margin(project: Callable[[Tensor], Tensor]) -> Tensor:
        return project(between).square().sum(1).mean() - project(within).square().sum(1).mean()

    return float(margin(lambda z: z @ projection.T) - margin(lambda z: z))


@dataclass(frozen=True)
class SpectrumConfig:
    """Options of the study of projection spectra: eigenvalues learned on known covariances.

    Attributes:
        dim: Number of feature dimensions, d.
        num_pairs: Number of patch pairs, n.
        variance_scale: Mean variance of the differences; small values keep tanh in its linear range.
        lambdas: Values of λ, in units of the mean variance.
        num_seeds: Number of seeds per value of λ.
    """

    dim: int = 16
    num_pairs: int = 200
    variance_scale: float = 1e-3
    lambdas: tuple[float, ...] = (0.3, 0.6, 1.2)
    num_seeds: int = 3


def run_spectrum_study(output_dir: str | Path, study_config: SpectrumConfig | None = None) -> dict[str, Any]:
    """Train projections, compare them with both theorems, and write results.json, spectrum.png and report.html.

    Args:
        output_dir: Folder for the results.
        study_config: Config of the study.

    Returns:
        The results, ready for JSON.

    Raises:
        StillmotionError: There are too few directions or seeds, or a λ is not positive.
    """
    study_config = study_config or SpectrumConfig()
    if study_config.dim < 2 or study_config.num_seeds < 1 or not study_config.lambdas or min(study_config.lambdas) <= 0:
        raise StillmotionError("a spectrum needs at least 2 directions, a seed, and positive strengths")
    folder = ensure_dir(output_dir)
    variances = study_config.variance_scale * torch.linspace(0.05, 1.95, study_config.dim, dtype=torch.float64)
    points, total = [], 2 * study_config.num_seeds * len(study_config.lambdas)
    for strength in study_config.lambdas:
        for layers in NUM_LAYERS:
            for seed in range(study_config.num_seeds):
                pairs = sample_pairs(variances, num_pairs=study_config.num_pairs, seed=seed)
                trained = train_projection(pairs, strength * study_config.variance_scale, num_layers=layers, seed=seed)
                eigenvalues = shrinkage_factors(trained, pairs.basis)
                predicted = predicted_eigenvalues(variances, strength * study_config.variance_scale)
                points.append(
                    {
                        "layers": layers,
                        "lambda": strength,
                        "seed": seed,
                        "eigenvalues": eigenvalues.tolist(),
                        "predicted_eigenvalues": predicted.tolist(),
                        "max_eigenvalue_error": float((eigenvalues - predicted).abs().max()),
                        "margin_gain": measured_margin_gain(trained, pairs, seed=seed) / study_config.variance_scale,
                        "predicted_margin_gain": predicted_margin_gain(
                            variances, strength * study_config.variance_scale
                        )
                        / study_config.variance_scale,
                    }
                )
                report_progress(len(points), total)
    results = {
        "config": asdict(study_config),
        "variances": (variances / study_config.variance_scale).tolist(),
        "points": points,
    }
    write_json(folder / RESULTS_FILE, results)
    most = _CURVE_MARGIN * max(study_config.lambdas)
    grid = torch.linspace(0.02, most, 200, dtype=torch.float64).tolist()
    curve = {
        "lambda": grid,
        "margin_gain": [predicted_margin_gain(variances / study_config.variance_scale, strength) for strength in grid],
    }
    write_spectrum_page(folder, results, curve)
    return results


def format_spectrum_results(results: Mapping[str, Any]) -> list[str]:
    """Format the largest errors of the theorems as lines for a terminal.

    Args:
        results: What `run_spectrum_study` returned.
    """
    lines = []
    for layers, name in ((1, "linear"), (2, "two layers")):
        chosen = [p for p in results["points"] if p["layers"] == layers]
        error = max(p["max_eigenvalue_error"] for p in chosen)
        gain = max(abs(p["margin_gain"] - p["predicted_margin_gain"]) for p in chosen)
        lines.append(f"{name:<12} largest error of an eigenvalue {error:.1e}, of the margin's growth {gain:.1e} τ")
    return lines
