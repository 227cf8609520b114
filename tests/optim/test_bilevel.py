"""`hypergradient` on functions: against closed forms on quadratics and explicit unrolling."""

from itertools import pairwise
from typing import get_args

import pytest
import torch
from support.unrolled_steps import INNER_LR, inner_path, leaves

from stillmotion.errors import StillmotionError
from stillmotion.optim.bilevel import (
    EARLY_FEATURES,
    LATE_LAYER_SOLVERS,
    SharedPrefix,
    SolverConfig,
    SolverName,
    hypergradient,
)
from stillmotion.training.tasks import get_recipe

SOLVERS = get_args(SolverName)
BILEVEL = tuple(name for name in SOLVERS if name not in ("plain", "single-level"))
solvers = pytest.mark.parametrize("name", SOLVERS)
steps = pytest.mark.parametrize("inner_steps", [1, 2, 5])


def vector(weights):
    return torch.cat([weights["a"].flatten(), weights["b"].flatten()])


def start_weights(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return {
        "a": torch.randn(3, generator=draw, dtype=torch.float64),
        "b": torch.randn(2, 2, generator=draw, dtype=torch.float64),
        "unused": torch.ones(2, dtype=torch.float64),
    }


def hessian():
    """Return a positive definite matrix with eigenvalues from 0.5 to 2 that is not diagonal."""
    rotation = torch.linalg.qr(torch.randn(7, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).Q
    return rotation @ torch.diag(torch.linspace(0.5, 2, 7, dtype=torch.float64)) @ rotation.T


def quadratic(weights):
    x = vector(weights)
    return 0.5 * x @ hessian() @ x - x.sum()


def nonquadratic(weights):
    """An inner loss whose Hessian is not constant."""
    x = vector(weights)
    return (x.sin() * x.roll(1)).sum() + 0.1 * x.square().square().sum()


def outer_loss(weights):
    x = vector(weights)
    return torch.logsumexp(torch.stack([x.sum(), (2 * x).cos().sum(), x[0] * x[4]]), 0)


def gradient_of(loss, weights):
    weights = leaves(weights)
    grads = torch.autograd.grad(loss(weights), weights.values(), allow_unused=True)
    return vector(dict(zip(weights, grads, strict=True)))


def solve(name, *, inner=quadratic, outer=outer_loss, weights=None, early=None, scale=1.0, **options):
    config = SolverConfig(name, **{"inner_lr": INNER_LR, "curvature_limit": 0.0, **options})
    return hypergradient(inner, outer, weights or start_weights(), config, shared_prefix=early, loss_scale=scale)


def check_on_a_quadratic_each_solver_has_its_closed_form(name, inner_steps):
    h, eye = hessian(), torch.eye(7, dtype=torch.float64)
    x = vector(start_weights())
    for _ in range(inner_steps):
        x = x - INNER_LR * (h @ x - 1)
    g = gradient_of(outer_loss, {"a": x[:3], "b": x[3:].reshape(2, 2)})
    proximal = eye + INNER_LR * inner_steps * h
    expected = {
        "first-order": g,
        "itd-rmad": torch.linalg.matrix_power(eye - INNER_LR * h, inner_steps) @ g,
        "exact-last-stage": torch.linalg.matrix_power(eye - INNER_LR * h, inner_steps) @ g,
        "exact-projector": torch.linalg.matrix_power(eye - INNER_LR * h, inner_steps) @ g,
        "aid-fd": (eye - INNER_LR * inner_steps * h) @ g,
        "aid-cg": torch.linalg.solve(proximal, g),
        "aid-nmn": sum(torch.linalg.matrix_power(eye - proximal, k) for k in range(5)) @ g,
    }
    gradient = solve(name, inner_steps=inner_steps, solver_iterations=4 if name == "aid-nmn" else 7)
    torch.testing.assert_close(vector(gradient), expected[name], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", BILEVEL)
def test_on_a_quadratic_each_solver_has_its_closed_form(name):
    for inner_steps in [1, 2, 5]:
        check_on_a_quadratic_each_solver_has_its_closed_form(name, inner_steps)


def test_a_long_neumann_series_is_the_inverse_that_conjugate_gradients_find():
    inverse, series = (
        solve("aid-cg", inner_steps=2, solver_iterations=7),
        solve("aid-nmn", inner_steps=2, solver_iterations=60),
    )
    torch.testing.assert_close(series, inverse, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["plain", "single-level"])
def test_without_an_inner_level_the_gradient_is_that_of_the_outer_loss(name):
    torch.testing.assert_close(vector(solve(name)), gradient_of(outer_loss, start_weights()))


@steps
def test_itd_is_the_gradient_through_explicitly_unrolled_steps(inner_steps):
    weights = leaves(start_weights())
    end = inner_path(nonquadratic, weights, inner_steps)[-1]
    grads = torch.autograd.grad(outer_loss(end), weights.values(), allow_unused=True)
    expected = vector(dict(zip(weights, grads, strict=True)))
    gradient = solve("itd-rmad", inner=nonquadratic, inner_steps=inner_steps)
    torch.testing.assert_close(vector(gradient), expected, atol=1e-12, rtol=1e-12)


def check_every_solver_takes_the_outer_gradient_where_the_inner_steps_lead(name, inner_steps):
    points = []

    def recording_loss(weights):
        points.append(vector(weights).detach())
        return outer_loss(weights)

    solve(name, inner=nonquadratic, outer=recording_loss, inner_steps=inner_steps)
    assert len(points) == 1
    expected = vector(inner_path(nonquadratic, leaves(start_weights()), inner_steps)[-1])
    torch.testing.assert_close(points[0], expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", BILEVEL)
def test_every_solver_takes_the_outer_gradient_where_the_inner_steps_lead(name):
    for inner_steps in [1, 2, 5]:
        check_every_solver_takes_the_outer_gradient_where_the_inner_steps_lead(name, inner_steps)


def early_features(weights):
    """Features of a batch of three, a function of the early weight "a"."""
    return (weights["a"] * torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)).sin() + weights["a"].roll(1)


def from_early_features(loss):
    """Return a loss of the early features and late weights; features that are not given are computed."""

    def run(weights):
        features = weights[EARLY_FEATURES] if EARLY_FEATURES in weights else early_features(weights)
        return loss({"a": features, "b": weights["b"]})

    return run


def check_late_steps_are_differentiated_through_with_what_they_owe_to_the_early_weights(name, inner_steps, scale):
    weights = leaves(start_weights())
    point = {**weights}
    for _ in range(inner_steps):
        (step,) = torch.autograd.grad(from_early_features(nonquadratic)(point), [point["b"]], create_graph=True)
        point["b"] = point["b"] - INNER_LR * step
    grads = torch.autograd.grad(from_early_features(outer_loss)(point), list(weights.values()), allow_unused=True)
    expected = vector(dict(zip(weights, grads, strict=True)))
    runs = []
    early = SharedPrefix(frozenset({"a"}), lambda w: runs.append(1) or early_features(w))
    gradient = solve(
        name,
        inner=from_early_features(nonquadratic),
        outer=from_early_features(outer_loss),
        early=early,
        inner_steps=inner_steps,
        scale=scale,
    )
    assert list(gradient) == list(weights)
    assert len(runs) == 1
    torch.testing.assert_close(vector(gradient), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", LATE_LAYER_SOLVERS)
def test_late_steps_are_differentiated_through_with_what_they_owe_to_the_early_weights(name):
    for scale in [1.0, 3.0]:
        for inner_steps in [1, 2, 5]:
            check_late_steps_are_differentiated_through_with_what_they_owe_to_the_early_weights(
                name, inner_steps, scale
            )


def check_an_inner_step_is_a_share_of_what_curvature_allows_and_no_more_than_asked_for(name, curvature, max_rate):
    h, x = hessian(), vector(start_weights())
    p = h @ x - 1
    rate = min(max_rate, curvature * float(p.norm() / (h @ p).norm()))
    end = x - rate * p
    g = gradient_of(outer_loss, {"a": end[:3], "b": end[3:].reshape(2, 2)})
    gradient = solve(name, curvature_limit=curvature, inner_lr=max_rate)
    torch.testing.assert_close(vector(gradient), g - rate * (h @ g), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", LATE_LAYER_SOLVERS)
def test_an_inner_step_is_a_share_of_what_curvature_allows_and_no_more_than_asked_for(name):
    for curvature, max_rate in [(0.3, 1.0), (0.3, 0.05), (1e-3, 1.0)]:
        check_an_inner_step_is_a_share_of_what_curvature_allows_and_no_more_than_asked_for(name, curvature, max_rate)


def test_the_error_of_finite_differences_falls_with_the_square_of_the_step():
    exact = vector(solve("itd-rmad", inner=nonquadratic))
    errors = [
        (vector(solve("aid-fd", inner=nonquadratic, difference_step=difference)) - exact).norm()
        for difference in (1e-1, 1e-2, 1e-3)
    ]
    for wide, narrow in pairwise(errors):
        assert wide / narrow == pytest.approx(100, rel=0.2)


def test_on_a_smooth_network_finite_differences_are_exact_to_rounding_however_large_the_weights():
    """ε = 0.01/‖v‖ does not depend on ‖θ‖: input weights of a tanh layer that are 100 times larger change nothing."""
    draw = torch.Generator().manual_seed(2)
    inputs, target, outer_target = (torch.randn(32, 8, generator=draw, dtype=torch.float64) for _ in range(3))

    def network(weights):
        return torch.tanh(inputs @ weights["first"] / weights["size"].detach()) @ weights["second"]

    for size in (1.0, 100.0):
        weights = {
            "first": size * torch.randn(8, 8, generator=draw, dtype=torch.float64) / 3,
            "second": torch.randn(8, 8, generator=draw, dtype=torch.float64) / 3,
            "size": torch.tensor(size, dtype=torch.float64),
        }
        approximate, exact = (
            torch.cat(
                [
                    g.flatten()
                    for g in solve(
                        name,
                        inner=lambda w: (network(w) - target).square().mean(),
                        outer=lambda w: (network(w) - outer_target).cosh().log().mean(),
                        weights=weights,
                    ).values()
                ]
            )
            for name in ("aid-fd", "itd-rmad")
        )
        assert (approximate - exact).norm() < 1e-6 * exact.norm()


@pytest.mark.parametrize(
    ("options", "inner_calls"),
    [
        ({"name": "plain"}, 0),
        ({"name": "single-level"}, 0),
        ({"name": "first-order"}, 3),
        ({"name": "itd-rmad"}, 3),
        ({"name": "exact-last-stage"}, 3),
        ({"name": "exact-projector"}, 3),
        ({"name": "aid-fd"}, 5),
        ({"name": "aid-cg"}, 4),
        ({"name": "aid-nmn"}, 4),
    ],
)
def test_the_outer_loss_is_called_once_and_the_inner_loss_as_often_as_documented(options, inner_calls):
    calls = {"inner": 0, "outer": 0}

    def count(name, loss):
        def counting_loss(weights):
            calls[name] += 1
            return loss(weights)

        return counting_loss

    solve(**options, inner=count("inner", nonquadratic), outer=count("outer", outer_loss), inner_steps=3)
    assert calls == {"inner": inner_calls, "outer": 1}


def check_the_scale_of_the_losses_does_not_show_in_the_gradient(name, scale):
    unscaled, scaled = (
        solve(name, inner=nonquadratic, inner_steps=2),
        solve(name, inner=nonquadratic, inner_steps=2, scale=scale),
    )
    torch.testing.assert_close(scaled, unscaled, atol=1e-11, rtol=1e-11)


@solvers
def test_the_scale_of_the_losses_does_not_show_in_the_gradient(name):
    for scale in [2.0**16, 3.0]:
        check_the_scale_of_the_losses_does_not_show_in_the_gradient(name, scale)


@solvers
def test_weights_are_left_as_they_are_and_gradients_come_without_a_graph(name):
    weights = {k: torch.nn.Parameter(w) for k, w in start_weights().items()}
    before = {k: w.detach().clone() for k, w in weights.items()}
    gradient = solve(name, inner=nonquadratic, weights=weights, inner_steps=2)
    assert list(gradient) == list(weights)
    for name, weight in weights.items():
        assert torch.equal(weight, before[name])
        assert weight.grad is None
        assert not gradient[name].requires_grad
    assert torch.equal(gradient["unused"], torch.zeros(2, dtype=torch.float64))


@solvers
def test_zero_weights_a_zero_gradient_and_a_linear_inner_loss_are_no_trouble(name):
    zero = {k: torch.zeros_like(w) for k, w in start_weights().items()}
    for inner, outer, weights in (
        (nonquadratic, outer_loss, zero),
        (nonquadratic, lambda w: 0 * vector(w).sum(), start_weights()),
        (lambda w: vector(w).sum(), outer_loss, start_weights()),
    ):
        gradient = solve(name, inner=inner, outer=outer, weights=weights, inner_steps=2)
        assert all(g.isfinite().all() for g in gradient.values())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "aid"}, "Unknown solver 'aid'. Choose one of plain, "),
        ({"inner_steps": 0}, "at least 1, got 0 and 5"),
        ({"solver_iterations": 0}, "at least 1, got 1 and 0"),
        ({"difference_step": 0.0}, "difference-step must be positive, got 0.0"),
        ({"curvature_limit": -0.1}, "curvature-limit must not be negative, got -0.1"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(StillmotionError, match=message):
        SolverConfig(**options)


def test_the_default_is_the_solver_of_the_librarys_own_recipes():
    for name in ("laptop", "demo-bod-simclr", "tokens-bod"):
        assert get_recipe(name).solver == SolverConfig()
