"""Koopman operator of a clip: static/dynamic split, spectrum and prediction loss (BOD-VCL, Eq. 18–21).

A clip's embeddings are B = [x_1 … x_{T-1}] and F = [x_2 … x_T] (columns, M×n with n = T-1); K = F B⁺ is M×M but
of rank ≤ n. It is never formed: everything is computed from the T×T Gram matrix in float64, at a cost that does not
depend on M. With B = Q Lᵀ (L the Cholesky factor of BᵀB + εI), K in the orthonormal coordinates Q is the n×n matrix
L⁻¹ BᵀF L⁻ᵀ, and everything in the split is a weighted sum of the frames: T weights each.

Differences from the paper: a dynamic component without phase beside Eq. 21, a ridge instead of the plain
pseudo-inverse, two smooth methods beside the hard threshold, and a prediction loss that can leave transitions out. NaN
in a clip's frames gives NaN in its results: nothing here waits for the device to check.

Shapes: b clips, T frames, M channels, n = T-1 transitions.
"""

import cmath
import contextlib
import math
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from stillmotion.errors import StillmotionError

DecompositionMethod = Literal["slow", "riesz", "eig"]
DynamicPooling = Literal["rms", "mean", "eq21"]

KOOPMAN_MIN_FRAMES = 3  # two transitions
STILL_THRESHOLD = 1e-3  # a dynamic component shorter than this fraction of the static one is zero
# Floors of a clip's mean square, absolute and relative to all frames, so that a clip of zeros, or of zeros but for its
# last frame, has finite weights and gradients.
_MIN_MEAN_SQUARE, _MIN_RELATIVE_SQUARE = 1e-60, 1e-6


def decompose(
    frames: Tensor,
    *,
    radius: float = 0.15,
    method: DecompositionMethod = "slow",
    pooling: DynamicPooling = "rms",
    ridge: float = 1e-3,
    filter_order: int = 2,
    nodes: int = 32,
) -> tuple[Tensor, Tensor]:
    """Split the frames of each clip into a static and a dynamic component (BOD-VCL, Eq. 18–21).

    With P the projector on the static part of the spectrum, the static component is the time mean of P x_t. The
    dynamic component pools what is left, x_t - P x_t, over time. Where it is shorter than `STILL_THRESHOLD` times the
    static component, nothing moves: it is zero, and so is its gradient. What rounding and the ridge leave of a still
    clip has the direction of its appearance, which normalization would bring back.

    Args:
        frames: Frame embeddings, (b, T, M) with T ≥ 3; L2-normalize them first if only direction matters.
        radius: Radius ξ: the part of the spectrum within ξ of 1 is static.
        method: "slow", a smooth symmetric filter 1/(1 + (|λ-1|/ξ)^{2·filter_order}); "riesz", the spectral projector
            as a contour integral; "eig", the paper's hard threshold on eigenvalues (first derivatives only).
        pooling: Pooling over time of the dynamic component. "rms": root mean square of each channel, which does not
            depend on where in its cycle a motion begins. "mean": time mean, so that static + dynamic is the mean
            frame. "eq21": the paper's Eq. 21, where static + dynamic is K times the mean frame.
        ridge: Ridge ε, relative to trace(BᵀB)/n.
        filter_order: Order of the filter of "slow".
        nodes: Nodes of the contour integral of "riesz".

    Returns:
        Static and dynamic component, each (b, M).

    Raises:
        StillmotionError: If the frames have the wrong shape or an option is out of range.

    Example:
        >>> still = torch.ones(1, 8, 4)  # a clip in which nothing changes
        >>> static, dynamic = decompose(still)
        >>> print(f"{static.norm():.2f} {dynamic.norm():.2f}")
        2.00 0.00
    """
    _check_options(frames, ridge)
    if not 0 < radius < math.inf:
        raise StillmotionError(f"radius is {radius}; must be positive and finite, such as 0.15.")
    if filter_order < 1 or nodes < 2:
        raise StillmotionError(
            f"filter_order is {filter_order}; must be at least 1. nodes is {nodes}; must be at least 2."
        )
    if pooling not in get_args(DynamicPooling):
        raise StillmotionError(f"pooling is {pooling!r}; must be rms, mean or eq21.")
    gram, _ = _gram(_float64(frames))
    operator, projected, factor = _operator(gram, ridge)
    if pooling == "eq21":
        coordinates = projected.mean(2, keepdim=True)
    else:  # B = Q Lᵀ: these coordinates of frames 1 … n are exact, so that the ridge does not shorten them
        coordinates = torch.cat([factor.mT, projected[..., -1:]], 2)
        coordinates = coordinates if pooling == "rms" else coordinates.mean(2, keepdim=True)
    if method == "slow":
        # K in the coordinates Q, whose columns are shorter than 1 where the ridge outweighs the frames: K̃ QᵀQ.
        lengths = torch.linalg.solve_triangular(factor.mT, projected[..., :-1], upper=True, left=False)
        static_coordinates = _filter_static(operator @ lengths, coordinates, radius, filter_order)
    elif method == "riesz":
        static_coordinates = _contour_projector(operator, coordinates, radius, nodes)
    elif method == "eig":
        static_coordinates = _threshold_projector(operator, coordinates, radius)
    else:
        raise StillmotionError(f"method is {method!r}; must be slow, riesz or eig.")

    def frame_weights(coordinates: Tensor) -> Tensor:
        """Weights (b, k, n) of the frames whose sums have these coordinates (b, n, k)."""
        return torch.linalg.solve_triangular(factor.mT, coordinates, upper=True).mT

    dtype = torch.promote_types(frames.dtype, torch.float32)
    x = frames.to(dtype)
    with _no_autocast(frames.device):
        if pooling == "eq21":  # weights of frames 2 … T
            weights = torch.cat([frame_weights(static_coordinates), frame_weights(coordinates - static_coordinates)], 1)
            static, dynamic = (weights.to(dtype) @ x[:, 1:]).unbind(1)
        else:  # weights of frames 1 … T-1
            projection = frame_weights(static_coordinates).to(dtype) @ x[:, :-1]
            static = projection.mean(1)
            dynamic = _root_mean_square(x - projection) if pooling == "rms" else x.mean(1) - static
    is_still = dynamic.norm(dim=1, keepdim=True) <= STILL_THRESHOLD * static.norm(dim=1, keepdim=True)
    return static.to(frames.dtype), torch.where(is_still, 0.0, dynamic).to(frames.dtype)


def _root_mean_square(x: Tensor) -> Tensor:
    """Root mean square over dimension 1; its gradient at zero is zero."""
    mean_square = x.square().mean(1)
    is_zero = mean_square == 0
    return mean_square.masked_fill(is_zero, 1.0).sqrt().masked_fill(is_zero, 0.0)


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
    """Error of predicting each frame from the one before by the clip's operator, averaged over clips (Eq. 19).

    Args:
        frames: Frame embeddings, (b, T, M) with T ≥ 3.
        orthogonality: Weight ν of ‖KᵀK - I‖²_F, counted above M - n, the minimum for an operator of rank n.
        ridge: Ridge ε, relative to trace(BᵀB)/n. If frames are linearly dependent, rounding errors enter the
            orthogonality as 1e-16/ε², so keep it above 1e-6.
        hold_out: 0 scores K on the transitions it was fitted to, which is zero but for the ridge if M > n; k fits all
            but the last k transitions and scores those; "leave-one-out" scores every transition with K fitted to all
            the others (exact, without refitting).
        relative: Divide by the mean square of the frames, so that shrinking them does not reduce the loss. False is
            the plain mean squared error of Eq. 19.

    Returns:
        The loss and its parts.

    Raises:
        StillmotionError: If the frames have the wrong shape or an option is out of range.

    Example:
        >>> angles = torch.arange(8.0)[None, :, None] * 0.5
        >>> rotation = torch.cat([angles.cos(), angles.sin()], 2)  # (1, 8, 2), a linear system
        >>> print(f"{prediction_loss(rotation).prediction:.3f}")
        0.000
    """
    _check_options(frames, ridge)
    n = frames.shape[1] - 1
    if hold_out != "leave-one-out" and not (isinstance(hold_out, int) and 0 <= hold_out < n):
        raise StillmotionError(
            f"hold_out is {hold_out!r}; with {n} transitions it must be 0 to {n - 1} or 'leave-one-out'."
        )
    gram, scale = _gram(_float64(frames))
    past, future = gram[:, :-1, :-1], gram[:, 1:, 1:]
    eye = torch.eye(n, dtype=gram.dtype, device=gram.device)
    inverse = torch.cholesky_inverse(_cholesky(past + ridge * eye))
    # Residuals are F·R for an n×k matrix R, with the squared norm tr(Rᵀ FᵀF R).
    if hold_out == "leave-one-out":
        residual = inverse / inverse.diagonal(dim1=1, dim2=2)[:, None]
    elif hold_out == 0:
        residual = ridge * inverse
    else:
        fit = n - hold_out
        head = _cholesky(past[:, :fit, :fit] + ridge * eye[:fit, :fit])
        predicted = torch.cholesky_solve(past[:, :fit, fit:], head)
        residual = torch.cat([-predicted, eye[fit:, fit:].expand(len(gram), -1, -1)], 1)
    error = (residual * (future @ residual)).sum((1, 2)) / residual.shape[2]
    if not relative:
        error = error * scale / frames.shape[2]
    q = future @ (inverse @ past @ inverse)
    excess = (q * q.mT).sum((1, 2)) - 2 * q.diagonal(dim1=1, dim2=2).sum(1) + n
    prediction, excess = error.mean().to(frames.dtype), excess.mean().to(frames.dtype)
    return PredictionLoss(prediction + orthogonality * excess, prediction, excess)


def eigenvalues(frames: Tensor, *, ridge: float = 1e-8) -> Tensor:
    """Eigenvalues of each clip's Koopman operator.

    Args:
        frames: Frame embeddings, (b, T, M) with T ≥ 3.
        ridge: Ridge ε, relative to trace(BᵀB)/n.

    Returns:
        Complex eigenvalues, (b, T-1), nearest to 1 first.
    """
    _check_options(frames, ridge)
    operator, _, _ = _operator(_gram(_float64(frames))[0], ridge)
    values = torch.linalg.eigvals(operator)
    return values.gather(1, (values - 1).abs().argsort(1))


def _check_options(frames: Tensor, ridge: float) -> None:
    if frames.ndim != 3 or 0 in frames.shape:
        raise StillmotionError(f"Frames have shape {tuple(frames.shape)}; expected (clips, frames, channels).")
    if frames.shape[1] < KOOPMAN_MIN_FRAMES:
        raise StillmotionError(
            f"Clips have {frames.shape[1]} time steps; the Koopman operator needs at least {KOOPMAN_MIN_FRAMES}. "
            "Increase --data.num-frames or set --method.model.per-frame-features."
        )
    if not ridge > 0:
        raise StillmotionError(f"ridge is {ridge}; must be positive (1e-8 is close to none).")


def _no_autocast(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Context without autocast, on devices that have it."""
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else contextlib.nullcontext()


def _float64(frames: Tensor) -> Tensor:
    return frames.to(torch.float64)  # autocast does not change it


class _GramMatrix(torch.autograd.Function):
    """XᵀX. Its gradient takes one product of the frames' size; autograd would take two and add a transposed copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.mT

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return (grads[0] + grads[0].mT) @ x


def _gram(x: Tensor) -> tuple[Tensor, Tensor]:
    """XᵀX divided by trace(BᵀB)/n, and that divisor."""
    gram = _GramMatrix.apply(x)
    squares = gram.diagonal(dim1=1, dim2=2)
    scale = torch.maximum(squares[:, :-1].mean(1), _MIN_RELATIVE_SQUARE * squares.mean(1)).clamp_min(_MIN_MEAN_SQUARE)
    return gram / scale[:, None, None], scale


def _cholesky(matrix: Tensor) -> Tensor:
    """Cholesky factor of a positive definite matrix, unchecked to avoid a device synchronization."""
    return torch.linalg.cholesky_ex(matrix).L


def _operator(gram: Tensor, ridge: float) -> tuple[Tensor, Tensor, Tensor]:
    """K and all frames (b, n, T) in orthonormal coordinates of span(B), and the Cholesky factor L of BᵀB + εI."""
    n = gram.shape[1] - 1
    factor = _cholesky(gram[:, :-1, :-1] + ridge * torch.eye(n, dtype=gram.dtype, device=gram.device))
    projected = torch.linalg.solve_triangular(factor, gram[:, :-1], upper=False)
    operator = torch.linalg.solve_triangular(factor.mT, projected[..., 1:], upper=True, left=False)
    return operator, projected, factor


def _filter_static(operator: Tensor, vectors: Tensor, radius: float, filter_order: int) -> Tensor:
    """(I + (DᵀD/ξ²)^order)⁻¹ v with D = K - I, as a sum over the roots p of p^order = -1.

    Each term -p/order · (A - pI)⁻¹ is as well conditioned as A; the power itself would be as badly as A^order.
    """
    eye = torch.eye(operator.shape[-1], dtype=operator.dtype, device=operator.device)
    d = (operator - eye) / radius
    p, count = _upper_roots(filter_order, d.device)
    systems = (d.mT @ d)[:, None] - p * eye
    solved = torch.linalg.solve_ex(systems, vectors[:, None].expand(-1, len(p), -1, -1).to(p.dtype)).result
    return (-count * p / filter_order * solved).sum(1).real


def _contour_projector(operator: Tensor, vectors: Tensor, radius: float, nodes: int) -> Tensor:
    """(1/2πi)∮ (zI - K)⁻¹ v dz round the circle of this radius about 1, by the trapezoid rule.

    Nodes z = 1 + ξp and their conjugates are added in real arithmetic, where C = (K - I)/ξ:
    -p (C - pI)⁻¹ - p̄ (C - p̄I)⁻¹ = 2 (I - Re(p) C) (C² - 2 Re(p) C + I)⁻¹.
    """
    eye = torch.eye(operator.shape[-1], dtype=operator.dtype, device=operator.device)
    c = (operator - eye) / radius
    p, count = _upper_roots(nodes, c.device)
    systems = (c @ c + eye)[:, None] - 2 * p.real * c[:, None]
    solved = torch.linalg.solve_ex(systems, vectors[:, None].expand(-1, len(p), -1, -1)).result * (count / nodes)
    return solved.sum(1) - c @ (p.real * solved).sum(1)


def _upper_roots(order: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Roots p of p^order = -1 that are not below the real axis, (k, 1, 1), and how many roots each stands for.

    A root above the real axis stands for its conjugate, too.
    """
    roots = [cmath.exp(1j * math.pi * (2 * k + 1) / order) for k in range((order + 1) // 2)]
    counts = [1 if abs(p.imag) < 1e-12 else 2 for p in roots]
    p = torch.tensor(roots, dtype=torch.complex128, device=device)
    return p[:, None, None], torch.tensor(counts, dtype=torch.float64, device=device)[:, None, None]


def _threshold_projector(operator: Tensor, vectors: Tensor, radius: float) -> Tensor:
    """Φ 1[|λ-1| < ξ] Φ⁻¹ v, differentiated by the Daleckii–Krein formula.

    Only pairs of eigenvalues on two sides of the threshold enter the derivative of a spectral projector; autograd
    through eigenvectors would divide by every difference and fail wherever two eigenvalues on one side meet.
    """
    with torch.no_grad():
        values, modes = torch.linalg.eig(operator)
        inverse = torch.linalg.pinv(modes)
        inside = ((values - 1).abs() < radius).to(values.dtype)
        gap = values[:, :, None] - values[:, None]
        jump = inside[:, :, None] - inside[:, None]
        slope = torch.where(jump == 0, 0, jump / torch.where(gap == 0, 1, gap))
    moved = inverse @ operator.to(values.dtype) @ modes - torch.diag_embed(values)
    projector = modes @ (torch.diag_embed(inside) + slope * moved) @ inverse
    return (projector @ vectors.to(values.dtype)).real
