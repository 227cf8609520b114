"""Gradients of an outer loss taken at weights that an inner loss has improved (BOD-VCL, Eq. 23–25).

Both levels share one set of weights θ: θ* = θ - γ∇inner(θ), one or more steps, and wanted is d outer(θ*(θ)) / dθ.
With g = ∇outer(θ*) and H the Hessian of the inner loss, the solvers return

    plain         ∇outer(θ); the inner loss is not used
    single-level  ∇outer(θ) likewise: there the caller's outer loss holds the inner one, from one pass (Table 8)
    first-order   g
    itd-rmad      Π_k (I - γH(θ_k)) g, by reverse differentiation through the inner steps: exact
    exact-late    the same where the inner level moves the late weights only, with γ chosen by curvature: exact, too
    exact-head    likewise, the late weights being the projector's
    aid-fd        the same product at θ with H v by a finite difference of ∇inner: first order plus one pass
    aid-cg        (I + γ·steps·H(θ))⁻¹ g by conjugate gradients: θ* as the proximal point of θ
    aid-nmn       the same inverse by a truncated Neumann series

Late are the weights behind a seam, up to which both levels share one pass. With h what that pass makes of the early
weights, θ* depends on h also through ∇inner; so what goes back into the shared pass is ∂outer/∂h - γ(∂²inner/∂h∂θ) g.

Weights are passed as a dictionary and never written to, so there is nothing to put back. On several ranks each
gradient and each Hessian product is averaged as soon as it is made, so all ranks hold the same θ*.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from stillmotion.distributed import average_
from stillmotion.errors import StillmotionError
from stillmotion.optim.reduce import mean_gradient

Weights = dict[str, Tensor]
Loss = Callable[[Weights], Tensor]
How = Literal[
    "plain", "single-level", "first-order", "exact-late", "exact-head", "aid-fd", "aid-cg", "aid-nmn", "itd-rmad"
]
CHOSEN: tuple[How, ...] = ("exact-late", "exact-head")  # with an inner level of late weights, and γ by curvature
TWICE: tuple[How, ...] = ("exact-late", "itd-rmad", "aid-cg", "aid-nmn")  # through the network, and not its head alone
SEAM = "seam"  # stands among the weights for what the early ones have made


@dataclass(frozen=True)
class SolverConfig:
    """How the two levels are combined.

    Attributes:
        how: plain and single-level have no inner level; that of exact-head moves the projector and that of exact-late
            the backbone's last stage, too, with exact products; aid-fd is the paper's choice.
        inner_steps: gradient steps on the inner loss before the outer loss is taken (Table 9).
        inner_lr: γ, the size of those steps; for exact-head and exact-late, the most that γ can be.
        curvature: γ of exact-head and exact-late is at most this share of ‖p‖/‖Hp‖, p being the inner gradient and H
            its derivative, so that an inner step turns the outer gradient a little and not round; 0 sets no such limit.
        central: aid-fd takes a central difference: one more pass, an error of second order in its step.
        difference: aid-fd's step as a share of the weights' norm. Not small, because the gradient of a ReLU network
            jumps: at 3e-4 the jumps drown H v, and above 3e-2 its curvature is passed over.
        terms: iterations of aid-cg, or terms of aid-nmn's series.
    """

    how: How = "exact-head"
    inner_steps: int = 1
    inner_lr: float = 0.1
    curvature: float = 0.1
    central: bool = False
    difference: float = 0.01
    terms: int = 5

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise StillmotionError(f"solver is {self.how!r}; choose one of {', '.join(get_args(How))}")
        if not self.difference > 0:
            raise StillmotionError(f"difference is {self.difference}; it must be positive (0.01 is a good start)")
        if self.curvature < 0:
            raise StillmotionError(f"curvature is {self.curvature}; it must be positive, or 0 for γ = inner_lr")
        if self.inner_steps < 1 or self.terms < 1:
            raise StillmotionError(
                f"inner_steps {self.inner_steps} and terms {self.terms} must be at least 1 (--solver.how plain has no "
                "inner level)"
            )


class Early(NamedTuple):
    """The part of a network before the seam: its weights' names, and from all weights to what it makes of the batch."""

    names: frozenset[str]
    run: Callable[[Weights], Tensor]


def hypergradient(
    inner: Loss,
    outer: Loss,
    weights: Weights,
    config: SolverConfig,
    *,
    early: Early | None = None,
    precision: torch.dtype | None = None,
    scale: float = 1.0,
) -> Weights:
    """The gradient of `outer` at the weights that `inner` improves, with respect to the weights before.

    inner, outer: from weights to this rank's mean loss. `outer` is called exactly once, and `inner` only where there
        is an inner level.
    weights: by name; those that a loss does not use get a zero gradient.
    early: of exact-late and exact-head; without it all weights are late. With it `inner` and `outer` get, in place of
        its weights, what it has made under the name `SEAM`.
    precision: the dtype that autocast computes the losses in, if any; no finite difference is taken below its rounding.
    scale: losses are multiplied by it before, and gradients divided by it after each backward pass, against
        underflow in float16. Where it makes a gradient overflow, that gradient is returned at once, so that the
        caller lowers the scale.
    """
    weights = _leaves(weights)
    early = early if config.how in CHOSEN else None
    if config.how in ("plain", "single-level"):
        return _mean_gradient(outer(weights), weights, scale)

    unroll = config.how in ("itd-rmad", *CHOSEN)
    # Where each inner step was taken, this rank's inner gradient there, and the step's size.
    path: list[tuple[Weights, Weights, float | Tensor]] = []
    rate: float | Tensor = config.inner_lr
    start, here, first_step = weights, weights, None
    if early is not None:
        seam = early.run(weights)
        seam = seam.to(torch.promote_types(seam.dtype, torch.float32))  # its gradient must not underflow
        here = _leaves({k: w for k, w in weights.items() if k not in early.names} | {SEAM: seam})
    for _ in range(config.inner_steps):
        moved = {k: w for k, w in here.items() if k != SEAM}
        if unroll:
            local = _gradient(inner(here), moved, scale)
            step = _averaged(local)
        else:
            step = _mean_gradient(inner(here), moved, scale)
        if scale != 1 and not _finite(step):
            return _with_zeros(step, weights)
        if unroll:
            rate = _rate(config, local, moved, step)
            path.append((here, local, rate))
        if config.how == "aid-fd" and first_step is None:
            first_step = step
        here = _leaves(here | _subtract(moved, step, rate))
        local = {}
        del moved, step  # copies of the weights, which the outer pass need not hold
    gradient = _mean_gradient(outer(here), here, scale)
    del here
    if scale != 1 and not _finite(gradient):
        return _with_zeros(gradient, weights)

    if unroll:
        for point, local, rate in reversed(path):
            gradient = _subtract(gradient, _hessian_product(local, point, gradient), rate)
        if early is not None:
            before = {k: w for k, w in weights.items() if k in early.names}
            gradient |= _mean_gradient((seam * gradient.pop(SEAM)).sum(), before, scale)
            gradient = {k: gradient[k] for k in weights}
    elif config.how == "aid-fd":
        dtype = precision or next(iter(start.values())).dtype
        share = max(config.difference, torch.finfo(dtype).eps)

        def inner_gradient(w: Weights) -> Weights:
            w = _leaves(w)
            return _mean_gradient(inner(w), w, scale)

        for _ in range(config.inner_steps):
            base = None if config.central else first_step
            product = _finite_difference(inner_gradient, start, gradient, base, share)
            gradient = _subtract(gradient, product, config.inner_lr)
    elif config.how in ("aid-cg", "aid-nmn"):
        local = _gradient(inner(start), start, scale)
        rate = config.inner_lr * config.inner_steps

        def damped(v: Weights) -> Weights:
            return _subtract(v, _hessian_product(local, start, v), -rate)

        solve = _conjugate_gradient if config.how == "aid-cg" else _neumann
        gradient = solve(damped, gradient, config.terms)
    return gradient


def _leaves(weights: Weights) -> Weights:
    return {k: w.detach().requires_grad_() for k, w in weights.items()}


def _gradient(loss: Tensor, weights: Weights, scale: float) -> Weights:
    """This rank's gradient, with the graph that it can be differentiated by again."""
    grads = torch.autograd.grad(loss * scale, list(weights.values()), create_graph=True, materialize_grads=True)
    return _unscaled(dict(zip(weights, grads, strict=True)), scale)


def _mean_gradient(loss: Tensor, weights: Weights, scale: float) -> Weights:
    """The mean over ranks, but at the seam this rank's own."""
    return _unscaled(mean_gradient(loss * scale, weights, own=frozenset({SEAM})), scale)


def _unscaled(gradient: Weights, scale: float) -> Weights:
    return gradient if scale == 1 else {k: g / scale for k, g in gradient.items()}


def _with_zeros(gradient: Weights, weights: Weights) -> Weights:
    return {k: gradient[k] if k in gradient else torch.zeros_like(w) for k, w in weights.items()}


def _rate(config: SolverConfig, local: Weights, point: Weights, step: Weights) -> float | Tensor:
    """γ: `inner_lr`, or less where it is chosen and the inner loss bends along its own gradient."""
    if config.how not in CHOSEN or config.curvature == 0:
        return config.inner_lr
    bend = _norm(_hessian_product(local, point, step)).clamp_min(torch.finfo(torch.float32).tiny)
    return (config.curvature * _norm(step) / bend).clamp_max(config.inner_lr)


def _averaged(gradient: Weights) -> Weights:
    """The mean over ranks of what is there already, detached; at the seam each rank's own. No graph is touched."""
    # A stride of 0 is an expanded tensor, which cannot be written to.
    mean = {k: g.detach().clone() if g.requires_grad or 0 in g.stride() else g for k, g in gradient.items()}
    average_(g for k, g in mean.items() if k != SEAM)
    return mean


def _hessian_product(local: Weights, point: Weights, v: Weights) -> Weights:
    """H v averaged over ranks, from a gradient whose graph is kept; H is symmetric."""
    used = [k for k, g in local.items() if g.requires_grad]
    products = torch.autograd.grad(
        [local[k] for k in used],
        list(point.values()),
        [v[k] for k in used],
        retain_graph=True,
        materialize_grads=True,
    )
    return _averaged(dict(zip(point, products, strict=True)))


def _finite_difference(
    gradient: Callable[[Weights], Weights],
    weights: Weights,
    v: Weights,
    base: Weights | None,
    share: float,
) -> Weights:
    """H v ≈ (∇(θ + εv) - ∇(θ)) / ε, or the central difference where no base ∇(θ) is given."""
    size = _norm(weights).detach()
    step = share * torch.where(size > 0, size, 1) / _norm(v).clamp_min(1e-30)
    ahead = gradient(_subtract(weights, v, -step))
    if base is not None:
        return {k: (ahead[k] - base[k]) / step for k in weights}
    behind = gradient(_subtract(weights, v, step))
    return {k: (ahead[k] - behind[k]) / (2 * step) for k in weights}


def _conjugate_gradient(matrix: Callable[[Weights], Weights], b: Weights, iterations: int) -> Weights:
    x = {k: torch.zeros_like(t) for k, t in b.items()}
    r, p, rr = b, b, _dot(b, b)
    for _ in range(iterations):
        ap = matrix(p)
        alpha = _quotient(rr, _dot(p, ap))
        x = _subtract(x, p, -alpha)
        r = _subtract(r, ap, alpha)
        previous, rr = rr, _dot(r, r)
        p = _subtract(r, p, -_quotient(rr, previous))
    return x


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where a is all but 0: what is solved stays as it is."""
    return torch.where(a > torch.finfo(a.dtype).tiny, a / b, 0)


def _neumann(matrix: Callable[[Weights], Weights], b: Weights, terms: int) -> Weights:
    """Σ_k (I - A)^k b for k = 0 … terms."""
    total, term = b, b
    for _ in range(terms):
        term = _subtract(term, matrix(term), 1.0)
        total = _subtract(total, term, -1.0)
    return total


def _subtract(a: Weights, b: Weights, rate: float | Tensor) -> Weights:
    return {k: a[k] - rate * b[k] for k in a}


def _dot(a: Weights, b: Weights) -> Tensor:
    return torch.stack([(a[k] * b[k]).sum() for k in a]).sum()


def _finite(a: Weights) -> bool:
    return bool(torch.stack([t.isfinite().all() for t in a.values()]).all())


def _norm(a: Weights) -> Tensor:
    return _dot(a, a).sqrt()
