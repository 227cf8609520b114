"""Bi-level solvers: gradients of an outer loss after steps on an inner loss (BOD-VCL, Eq. 23–25).

Both levels share one set of weights θ: θ* = θ - γ∇inner(θ), one or more steps; the solvers compute
d outer(θ*(θ)) / dθ. With g = ∇outer(θ*) and H the Hessian of the inner loss, they return

    plain             ∇outer(θ); the inner loss is not used
    single-level      ∇outer(θ); the caller's outer loss includes the inner one, from one pass (Table 8)
    first-order       g
    itd-rmad          Π_k (I - γH(θ_k)) g, by reverse differentiation through the inner steps: exact
    exact-last-stage  the same if the inner level updates the late weights only, with γ limited by curvature: exact, too
    exact-projector   likewise; the late weights are the projector's
    aid-fd            (I - γ·steps·H(θ)) g with H g by a central difference of ∇inner: first order plus two passes
    aid-cg            (I + γ·steps·H(θ))⁻¹ g by conjugate gradients: θ* as the proximal point of θ
    aid-nmn           the same inverse by a truncated Neumann series

Late weights are those behind the part of the network that both levels share in one pass. With h the result of that pass
(the early features), θ* depends on h also through ∇inner; so the gradient that goes back into the shared pass is
∂outer/∂h - γ(∂²inner/∂h∂θ) g.

Weights are passed as a dictionary and never written to, so there is nothing to restore. On several ranks each gradient
and each Hessian product is averaged as soon as it is computed, so that all ranks have the same θ*.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from stillmotion.distributed.collectives import all_reduce_mean_
from stillmotion.errors import StillmotionError
from stillmotion.optim.gradient_allreduce import all_reduced_gradients

ParamDict = dict[str, Tensor]
LossFn = Callable[[ParamDict], Tensor]
SolverName = Literal[
    "plain",
    "single-level",
    "first-order",
    "exact-last-stage",
    "exact-projector",
    "aid-fd",
    "aid-cg",
    "aid-nmn",
    "itd-rmad",
]
# Solvers whose inner level updates late weights only, with γ limited by curvature.
LATE_LAYER_SOLVERS: tuple[SolverName, ...] = ("exact-last-stage", "exact-projector")
# Solvers that differentiate the backbone twice.
SECOND_ORDER_SOLVERS: tuple[SolverName, ...] = ("exact-last-stage", "itd-rmad", "aid-cg", "aid-nmn")
EARLY_FEATURES = "early_features"  # name of the early features among the weights


@dataclass(frozen=True)
class SolverConfig:
    """Solver of the bi-level optimization.

    Attributes:
        name: Bi-level solver. plain and single-level have no inner level. first-order is what the laptop and demo
            recipes use, aid-fd the paper's choice. exact-projector updates the projector in the inner level,
            exact-last-stage also the backbone's last stage.
        inner_steps: Inner gradient steps before the outer loss is computed (BOD-VCL, Table 9).
        inner_lr: Inner step size γ; the upper limit of γ for exact-projector and exact-last-stage.
        curvature_limit: For exact-projector and exact-last-stage: γ is at most this factor times ‖p‖/‖Hp‖, where p is
            the inner gradient and H the inner Hessian. 0 disables the limit.
        difference_step: For aid-fd: distance of the two points of the central difference from the weights.
        solver_iterations: Iterations of aid-cg, or terms of aid-nmn's Neumann series.
    """

    name: SolverName = "first-order"
    inner_steps: int = 1
    inner_lr: float = 0.003
    curvature_limit: float = 0.1
    difference_step: float = 0.01
    solver_iterations: int = 5

    def __post_init__(self) -> None:
        if self.name not in get_args(SolverName):
            raise StillmotionError(f"Unknown solver {self.name!r}. Choose one of {', '.join(get_args(SolverName))}.")
        if not self.difference_step > 0:
            raise StillmotionError(
                f"--solver.difference-step must be positive, got {self.difference_step}. 0.01 is a good default."
            )
        if self.curvature_limit < 0:
            raise StillmotionError(
                f"--solver.curvature-limit must not be negative, got {self.curvature_limit}. 0 disables the limit."
            )
        if self.inner_steps < 1 or self.solver_iterations < 1:
            raise StillmotionError(
                f"--solver.inner-steps and --solver.solver-iterations must be at least 1, got {self.inner_steps} and "
                f"{self.solver_iterations}. Use --solver.name plain for no inner level."
            )


class SharedPrefix(NamedTuple):
    """Part of a network that both levels share.

    Attributes:
        param_names: Names of its parameters.
        forward: From all weights to its output for the batch.
    """

    param_names: frozenset[str]
    forward: Callable[[ParamDict], Tensor]


def hypergradient(
    inner: LossFn,
    outer: LossFn,
    weights: ParamDict,
    config: SolverConfig,
    *,
    shared_prefix: SharedPrefix | None = None,
    loss_scale: float = 1.0,
) -> ParamDict:
    """Compute the gradient of the outer loss after inner steps, by the weights before them.

    Args:
        inner: From weights to this rank's mean inner loss; called only if there is an inner level.
        outer: From weights to this rank's mean outer loss; called exactly once.
        weights: Weights by name; those that a loss does not use get a zero gradient.
        config: Options of the solver.
        shared_prefix: Shared part of the network, for exact-last-stage and exact-projector; without it all weights are
            late. With it, `inner` and `outer` get its output as `EARLY_FEATURES` in place of its weights.
        loss_scale: Losses are multiplied by it before, and gradients divided by it after each backward pass, against
            underflow in float16. If a gradient overflows, it is returned at once, so that the caller lowers the scale.
    """
    weights = _as_leaves(weights)
    shared_prefix = shared_prefix if config.name in LATE_LAYER_SOLVERS else None
    if config.name in ("plain", "single-level"):
        return _mean_gradient(outer(weights), weights, loss_scale)

    unroll = config.name in ("itd-rmad", *LATE_LAYER_SOLVERS)
    # Weights of each inner step, this rank's inner gradient there, and the step size.
    path: list[tuple[ParamDict, ParamDict, float | Tensor]] = []
    rate: float | Tensor = config.inner_lr
    current = weights
    if shared_prefix is not None:
        early = shared_prefix.forward(weights)
        early = early.to(torch.promote_types(early.dtype, torch.float32))  # its gradient must not underflow
        current = _as_leaves(
            {k: w for k, w in weights.items() if k not in shared_prefix.param_names} | {EARLY_FEATURES: early}
        )
    for _ in range(config.inner_steps):
        late = {k: w for k, w in current.items() if k != EARLY_FEATURES}
        if unroll:
            local = _gradient(inner(current), late, loss_scale)
            step = _all_reduced(local)
        else:
            step = _mean_gradient(inner(current), late, loss_scale)
        if loss_scale != 1 and not _all_finite(step):
            return _fill_missing(step, weights)
        if unroll:
            rate = _inner_step_size(config, local, late, step)
            path.append((current, local, rate))
        current = _as_leaves(current | _subtract(late, step, rate))
        local = {}
        del late, step  # copies of the weights, freed before the outer pass
    gradient = _mean_gradient(outer(current), current, loss_scale)
    del current
    if loss_scale != 1 and not _all_finite(gradient):
        return _fill_missing(gradient, weights)

    if unroll:
        for point, local, rate in reversed(path):
            gradient = _subtract(gradient, _hessian_product(local, point, gradient), rate)
        if shared_prefix is not None:
            prefix_weights = {k: w for k, w in weights.items() if k in shared_prefix.param_names}
            gradient |= _mean_gradient((early * gradient.pop(EARLY_FEATURES)).sum(), prefix_weights, loss_scale)
            gradient = {k: gradient[k] for k in weights}
    elif config.name == "aid-fd":

        def inner_gradient(point: ParamDict) -> ParamDict:
            point = _as_leaves(point)
            return _mean_gradient(inner(point), point, loss_scale)

        product = _finite_difference(inner_gradient, weights, gradient, config.difference_step)
        gradient = _subtract(gradient, product, config.inner_lr * config.inner_steps)
    elif config.name in ("aid-cg", "aid-nmn"):
        local = _gradient(inner(weights), weights, loss_scale)
        rate = config.inner_lr * config.inner_steps

        def damped(v: ParamDict) -> ParamDict:
            return _subtract(v, _hessian_product(local, weights, v), -rate)

        solve = _conjugate_gradient if config.name == "aid-cg" else _neumann
        gradient = solve(damped, gradient, config.solver_iterations)
    return gradient


def _as_leaves(weights: ParamDict) -> ParamDict:
    return {k: w.detach().requires_grad_() for k, w in weights.items()}


def _gradient(loss: Tensor, weights: ParamDict, scale: float) -> ParamDict:
    """Gradient of this rank, which can be differentiated again."""
    grads = torch.autograd.grad(loss * scale, list(weights.values()), create_graph=True, materialize_grads=True)
    return _unscaled(dict(zip(weights, grads, strict=True)), scale)


def _mean_gradient(loss: Tensor, weights: ParamDict, scale: float) -> ParamDict:
    """Gradient averaged over ranks; that of early features is this rank's."""
    return _unscaled(all_reduced_gradients(loss * scale, weights, local_names=frozenset({EARLY_FEATURES})), scale)


def _unscaled(gradient: ParamDict, scale: float) -> ParamDict:
    return gradient if scale == 1 else {k: g / scale for k, g in gradient.items()}


def _fill_missing(gradient: ParamDict, weights: ParamDict) -> ParamDict:
    return {k: gradient[k] if k in gradient else torch.zeros_like(w) for k, w in weights.items()}


def _inner_step_size(config: SolverConfig, local: ParamDict, point: ParamDict, step: ParamDict) -> float | Tensor:
    """γ: `inner_lr`, or less if the curvature of the inner loss along its gradient limits it."""
    if config.name not in LATE_LAYER_SOLVERS or config.curvature_limit == 0:
        return config.inner_lr
    curvature = _norm(_hessian_product(local, point, step)).clamp_min(torch.finfo(torch.float32).tiny)
    return (config.curvature_limit * _norm(step) / curvature).clamp_max(config.inner_lr)


def _all_reduced(gradient: ParamDict) -> ParamDict:
    """Detached mean over ranks; that of early features is this rank's."""
    # A stride of 0 is an expanded tensor, which cannot be written to.
    mean = {k: g.detach().clone() if g.requires_grad or 0 in g.stride() else g for k, g in gradient.items()}
    all_reduce_mean_(g for k, g in mean.items() if k != EARLY_FEATURES)
    return mean


def _hessian_product(local: ParamDict, point: ParamDict, v: ParamDict) -> ParamDict:
    """H v averaged over ranks, from a gradient that can be differentiated; H is symmetric."""
    used = [k for k, g in local.items() if g.requires_grad]
    products = torch.autograd.grad(
        [local[k] for k in used],
        list(point.values()),
        [v[k] for k in used],
        retain_graph=True,
        materialize_grads=True,
    )
    return _all_reduced(dict(zip(point, products, strict=True)))


def _finite_difference(
    gradient: Callable[[ParamDict], ParamDict], weights: ParamDict, v: ParamDict, distance: float
) -> ParamDict:
    """H v ≈ (∇(θ + εv) - ∇(θ - εv)) / 2ε, where ε‖v‖ is the distance."""
    step = distance / _norm(v).clamp_min(1e-30)
    ahead = gradient(_subtract(weights, v, -step))
    behind = gradient(_subtract(weights, v, step))
    return {k: (ahead[k] - behind[k]) / (2 * step) for k in weights}


def _conjugate_gradient(matrix: Callable[[ParamDict], ParamDict], b: ParamDict, iterations: int) -> ParamDict:
    x = {k: torch.zeros_like(t) for k, t in b.items()}
    r, p, rr = b, b, _dot(b, b)
    for _ in range(iterations):
        ap = matrix(p)
        alpha = _safe_divide(rr, _dot(p, ap))
        x = _subtract(x, p, -alpha)
        r = _subtract(r, ap, alpha)
        previous, rr = rr, _dot(r, r)
        p = _subtract(r, p, -_safe_divide(rr, previous))
    return x


def _safe_divide(a: Tensor, b: Tensor) -> Tensor:
    """a / b, or 0 if a is almost 0, so that a solution does not change any more."""
    return torch.where(a > torch.finfo(a.dtype).tiny, a / b, 0)


def _neumann(matrix: Callable[[ParamDict], ParamDict], b: ParamDict, terms: int) -> ParamDict:
    """Σ_k (I - A)^k b for k = 0 … terms."""
    total, term = b, b
    for _ in range(terms):
        term = _subtract(term, matrix(term), 1.0)
        total = _subtract(total, term, -1.0)
    return total


def _subtract(a: ParamDict, b: ParamDict, rate: float | Tensor) -> ParamDict:
    return {k: a[k] - rate * b[k] for k in a}


def _dot(a: ParamDict, b: ParamDict) -> Tensor:
    return torch.stack([(a[k] * b[k]).sum() for k in a]).sum()


def _all_finite(a: ParamDict) -> bool:
    return bool(torch.stack([t.isfinite().all() for t in a.values()]).all())


def _norm(a: ParamDict) -> Tensor:
    return _dot(a, a).sqrt()
