"""The Koopman operator of a clip, its spectrum split at 1, and how well it predicts (BOD-VCL, Eq. 18–21).

A clip's embeddings are B = [x_1 … x_{T-1}] and F = [x_2 … x_T] (columns, M×n with n = T-1); K = F B⁺ is M×M but
of rank ≤ n. Nothing here forms it: everything is read off the T×T Gram matrix in float64, and what follows it does
not depend on M. With B = Q Lᵀ (L the Cholesky factor of BᵀB + εI), K in the orthonormal coordinates Q is the n×n
matrix L⁻¹ BᵀF L⁻ᵀ, and both halves of the split are weighted sums of the frames: a T-vector of weights per clip.
What differs from the paper: a ridge in place of the bare pseudo-inverse, two splitters beside the hard threshold,
weights `project` beside Eq. 21, and a prediction loss that can hold transitions out. NaN in a clip's frames is NaN in
what is made of it: nothing here waits for the device to look.

Shapes: b clips, T frames, M channels, n = T-1 transitions.
"""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.errors import StillmotionError

DecompositionMethod = Literal["slow", "riesz", "eig"]
Weighting = Literal["project", "advance"]

KOOPMAN_MIN_FRAMES = 3  # two transitions: one to fit, one to tell it from
_MIN_MEAN_SQUARE = 1e-60  # floor of a clip's mean square, so that a clip of zeros has weights and a gradient
_MIN_RELATIVE_SQUARE = (
    1e-6  # and its floor relative to all frames, so that a clip of zeros but for its last frame has them too
)


def decompose(
    frames: Tensor,
    *,
    radius: float = 0.15,
    method: DecompositionMethod = "slow",
    weighting: Weighting = "project",
    ridge: float = 1e-3,
    filter_order: int = 2,
    nodes: int = 32,
) -> tuple[Tensor, Tensor]:
    """Split clips into what stays and what changes; each half is (b, M).

    frames: (b, T, M), T ≥ 3, taken as they are: L2-normalise them first if direction is what counts.
    radius: ξ; the part of the spectrum within ξ of 1 is static.
    method: "slow", a smooth symmetric filter 1/(1 + (|λ-1|/ξ)^{2·power}); "riesz", the spectral projector as a
        contour integral with `nodes` nodes; "eig", the paper's hard threshold on eigenvalues (first derivatives only).
    weighting: "project" makes static + dynamic the mean frame; "advance" (Eq. 21) makes it K times the mean frame.
    ridge: ε relative to trace(BᵀB)/n.

    >>> still = torch.ones(1, 8, 4)  # a clip in which nothing changes
    >>> static, dynamic = decompose(still)
    >>> print(f"{static.norm():.2f} {dynamic.norm():.2f}")
    2.00 0.00
    """
    _check_options(frames, ridge)
    if not 0 < radius < math.inf:
        raise StillmotionError(f"radius is {radius}; it must be positive and finite (0.15 is a good start)")
    if filter_order < 1 or nodes < 2:
        raise StillmotionError(f"power {filter_order} and nodes {nodes}: at least 1 and 2")
    x = _float64(frames)
    operator, mean, factor = _operator(x, ridge)
    if weighting == "project":
        mean = mean + ridge * _ridge_residual(factor, mean)
    if method == "slow":
        kept = _filter_static(operator, mean, radius, filter_order)
    elif method == "riesz":
        kept = _contour_projector(operator, mean, radius, nodes)
    elif method == "eig":
        kept = _threshold_projector(operator, mean, radius)
    else:
        raise StillmotionError(f"how is {method!r}; choose slow, riesz or eig")

    def frame_weights(coordinates: Tensor) -> Tensor:
        return torch.linalg.solve_triangular(factor.mT, coordinates[..., None], upper=True)[..., 0]

    if weighting == "project":
        static_weights = F.pad(frame_weights(kept), (0, 1))
        dynamic_weights = 1 / frames.shape[1] - static_weights
    elif weighting == "advance":
        static_weights = F.pad(frame_weights(kept), (1, 0))
        dynamic_weights = F.pad(frame_weights(mean - kept), (1, 0))
    else:
        raise StillmotionError(f"weight is {weighting!r}; choose project or advance")
    static, dynamic = (torch.stack([static_weights, dynamic_weights], 1) @ x).unbind(1)
    return static.to(frames.dtype), dynamic.to(frames.dtype)


class PredictionLoss(NamedTuple):
    """L_pred (Eq. 19) and its parts: total = prediction + ν · orthogonality."""

    total: Tensor
    prediction: Tensor
    orthogonality: Tensor


def prediction_loss(
    frames: Tensor,
    *,
    orthogonality: float = 1e-4,
    ridge: float = 1e-3,
    hold_out: int | Literal["leave-one-out"] = "leave-one-out",
    relative: bool = True,
) -> PredictionLoss:
    """How badly each clip's operator predicts its next frames, averaged over clips (Eq. 19).

    frames: (b, T, M), T ≥ 3.
    orthogonality: ν, the weight of ‖KᵀK - I‖²_F; the part reported and used is what lies above M - n, the least
        that an operator of rank n can reach.
    ridge: ε relative to trace(BᵀB)/n; where frames depend on each other linearly, rounding enters the orthogonality
        as 1e-16/ε², so keep it above 1e-6.
    hold_out: 0 scores K on the transitions it was fitted on, which is zero but for the ridge wherever M > n;
        k fits all but the last k transitions and scores those; "leave-one-out" scores every transition with K fitted on
        all the others (exact leave-one-out, no refitting).
    relative: divide by the mean square of the frames, so that the loss does not fall by shrinking them; False is
        the plain mean squared error of Eq. 19.

    >>> angles = torch.arange(8.0)[None, :, None] * 0.5
    >>> turning = torch.cat([angles.cos(), angles.sin()], 2)  # (1, 8, 2): a rotation, which is linear
    >>> print(f"{prediction_loss(turning).prediction:.3f}")
    0.000
    """
    _check_options(frames, ridge)
    n = frames.shape[1] - 1
    if hold_out != "leave-one-out" and not (isinstance(hold_out, int) and 0 <= hold_out < n):
        raise StillmotionError(
            f"hold_out is {hold_out!r}; with {n} transitions it can be 0 to {n - 1} or 'leave-one-out'"
        )
    gram, scale = _gram(_float64(frames))
    past, future = gram[:, :-1, :-1], gram[:, 1:, 1:]
    eye = torch.eye(n, dtype=gram.dtype, device=gram.device)
    inverse = torch.cholesky_inverse(_cholesky(past + ridge * eye))
    # Residues are F·R for some n×k matrix R, and their squared norm is tr(Rᵀ FᵀF R).
    if hold_out == "leave-one-out":
        residue = inverse / inverse.diagonal(dim1=1, dim2=2)[:, None]
    elif hold_out == 0:
        residue = ridge * inverse
    else:
        fit = n - hold_out
        head = _cholesky(past[:, :fit, :fit] + ridge * eye[:fit, :fit])
        predicted = torch.cholesky_solve(past[:, :fit, fit:], head)
        residue = torch.cat([-predicted, eye[fit:, fit:].expand(len(gram), -1, -1)], 1)
    error = (residue * (future @ residue)).sum((1, 2)) / residue.shape[2]
    if not relative:
        error = error * scale / frames.shape[2]
    q = future @ (inverse @ past @ inverse)
    excess = (q * q.mT).sum((1, 2)) - 2 * q.diagonal(dim1=1, dim2=2).sum(1) + n
    prediction, excess = error.mean().to(frames.dtype), excess.mean().to(frames.dtype)
    return PredictionLoss(prediction + orthogonality * excess, prediction, excess)


def eigenvalues(frames: Tensor, *, ridge: float = 1e-8) -> Tensor:
    """The n = T-1 eigenvalues of each clip's operator, complex, (b, n), nearest to 1 first."""
    _check_options(frames, ridge)
    operator, _, _ = _operator(_float64(frames), ridge)
    eigenvalues = torch.linalg.eigvals(operator)
    return eigenvalues.gather(1, (eigenvalues - 1).abs().argsort(1))


def _check_options(frames: Tensor, ridge: float) -> None:
    if frames.ndim != 3 or 0 in frames.shape:
        raise StillmotionError(f"frames have shape {tuple(frames.shape)}; expected (clips, frames, channels)")
    if frames.shape[1] < KOOPMAN_MIN_FRAMES:
        steps = "1 time step" if frames.shape[1] == 1 else f"{frames.shape[1]} time steps"
        raise StillmotionError(
            f"clip has {steps}; a Koopman operator needs at least {KOOPMAN_MIN_FRAMES} "
            "(raise --data.num-frames, or keep one step a frame by --method.model.per-frame-features)"
        )
    if not ridge > 0:
        raise StillmotionError(f"ridge is {ridge}; it must be positive (1e-8 is close to none)")


def _float64(frames: Tensor) -> Tensor:
    return frames.to(torch.float64)  # which autocast leaves alone


def _gram(x: Tensor) -> tuple[Tensor, Tensor]:
    """XᵀX divided by trace(BᵀB)/n, which is returned beside it."""
    gram = x @ x.mT
    squares = gram.diagonal(dim1=1, dim2=2)
    scale = torch.maximum(squares[:, :-1].mean(1), _MIN_RELATIVE_SQUARE * squares.mean(1)).clamp_min(_MIN_MEAN_SQUARE)
    return gram / scale[:, None, None], scale


def _cholesky(matrix: Tensor) -> Tensor:
    """The factor of what the ridge makes positive definite; not looked at, since that would wait for the device."""
    return torch.linalg.cholesky_ex(matrix).L


def _operator(x: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """K and the mean frame in orthonormal coordinates of span(B), and the Cholesky factor L of BᵀB + εI."""
    gram, _ = _gram(x)
    n = gram.shape[1] - 1
    factor = _cholesky(gram[:, :-1, :-1] + ridge * torch.eye(n, dtype=gram.dtype, device=gram.device))
    columns = torch.cat([gram[:, :-1, 1:], gram[:, :-1].mean(2, keepdim=True)], 2)
    columns = torch.linalg.solve_triangular(factor, columns, upper=False)
    half, mean = columns[..., :-1], columns[..., -1]
    operator = torch.linalg.solve_triangular(factor.mT, half, upper=True, left=False)
    return operator, mean, factor


def _ridge_residual(factor: Tensor, mean: Tensor) -> Tensor:
    """What the ridge left of the mean frame, divided by ε, in the coordinates of `mean`: (LᵀL)⁻¹ mean.

    A clip of equal frames is shortened by ε/(n + ε) in each projection. Where the halves sum to the mean frame, that
    share would count as change; projected once more, it is the square of it.
    """
    weights = torch.linalg.solve_triangular(factor.mT, mean[..., None], upper=True)
    return torch.linalg.solve_triangular(factor, weights, upper=False)[..., 0]


def _filter_static(operator: Tensor, vector: Tensor, radius: float, filter_order: int) -> Tensor:
    """(I + (DᵀD/ξ²)^power)⁻¹ v with D = K - I, as a sum over the roots p of p^power = -1.

    Each term -p/power · (A - pI)⁻¹ has the conditioning of A, where the power itself would have that of A^power.
    """
    d = (operator - torch.eye(operator.shape[-1], dtype=operator.dtype, device=operator.device)) / radius
    roots = [_unit(math.pi * (2 * k + 1) / filter_order) for k in range((filter_order + 1) // 2)]
    # A root above the real axis stands for its conjugate too.
    weights = [(-1 if abs(p.imag) < 1e-12 else -2) * p / filter_order for p in roots]
    return _resolvents(d.mT @ d, vector, roots, weights)


def _contour_projector(operator: Tensor, vector: Tensor, radius: float, nodes: int) -> Tensor:
    """(1/2πi)∮ (zI - K)⁻¹ v dz round the circle of this radius about 1, by the trapezoid rule."""
    upper = [radius * _unit(2 * math.pi * (k + 0.5) / nodes) for k in range((nodes + 1) // 2)]
    weights = [-(1 if abs(z.imag) < 1e-12 else 2) * z / nodes for z in upper]
    return _resolvents(operator, vector, [1 + z for z in upper], weights)


def _unit(angle: float) -> complex:
    return complex(math.cos(angle), math.sin(angle))


def _resolvents(matrix: Tensor, vector: Tensor, shifts: list[complex], weights: list[complex]) -> Tensor:
    """Re Σ_k w_k (A - s_k I)⁻¹ v, all shifts and clips in one batched solve."""
    s = torch.tensor(shifts, dtype=torch.complex128, device=matrix.device)
    w = torch.tensor(weights, dtype=torch.complex128, device=matrix.device)
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    systems = matrix[:, None] - s[:, None, None] * eye
    solved = torch.linalg.solve_ex(systems, vector[:, None].expand(-1, len(shifts), -1)[..., None].to(s.dtype)).result
    return (w[:, None] * solved[..., 0]).sum(1).real


def _threshold_projector(operator: Tensor, vector: Tensor, radius: float) -> Tensor:
    """Φ 1[|λ-1| < ξ] Φ⁻¹ v, differentiated by the Daleckii–Krein formula.

    Only pairs of eigenvalues on two sides of the threshold enter the derivative of a spectral projector; autograd
    through eigenvectors would divide by every difference and fail wherever two eigenvalues on one side meet.
    """
    with torch.no_grad():
        values, vectors = torch.linalg.eig(operator)
        inverse = torch.linalg.pinv(vectors)
        inside = ((values - 1).abs() < radius).to(values.dtype)
        gap = values[:, :, None] - values[:, None]
        jump = inside[:, :, None] - inside[:, None]
        slope = torch.where(jump == 0, 0, jump / torch.where(gap == 0, 1, gap))
    moved = inverse @ operator.to(values.dtype) @ vectors - torch.diag_embed(values)
    projector = vectors @ (torch.diag_embed(inside) + slope * moved) @ inverse
    return (projector @ vector[..., None].to(values.dtype))[..., 0].real
