"""`hypergradient` on the losses of methods: its gradients and its side effects."""

import copy
from typing import get_args

import pytest
import torch
from support.tiny_method import OBJECTIVES, make_level_loss, tiny_clips, tiny_method
from support.unrolled_steps import INNER_LR, inner_path, leaves
from torch.func import functional_call

from stillmotion.optim.bilevel import SolverConfig, SolverName, hypergradient

SOLVERS = get_args(SolverName)
solvers = pytest.mark.parametrize("name", SOLVERS)


def solve_method(method, clips, name, **options):
    outer = "both" if name == "single-level" else "outer"
    config = SolverConfig(name, **{"inner_lr": INNER_LR, "curvature_limit": 0.0, **options})
    return hypergradient(
        make_level_loss(method, clips, "inner"),
        make_level_loss(method, clips, outer),
        dict(method.trainable_parameters()),
        config,
    )


def check_batch_norm_moves_once_a_step_as_at_the_improved_weights_and_nothing_else_moves(objective, name):
    method, clips = tiny_method(objective).train(), tiny_clips()
    before = copy.deepcopy(method.state_dict())
    reference = copy.deepcopy(method)
    weights = leaves(method.trainable_parameters())
    if name not in ("plain", "single-level"):
        weights = inner_path(make_level_loss(reference, clips, "inner"), weights, 2)[-1]
    functional_call(reference, weights, (clips,))
    solve_method(method, clips, name, inner_steps=2)
    for name, value in method.state_dict().items():
        kind = name.rsplit(".", 1)[-1]
        if kind == "num_batches_tracked":
            assert value == 1, name
        elif kind.startswith("running"):
            assert not torch.equal(value, before[name]), name
            torch.testing.assert_close(value, reference.state_dict()[name], atol=1e-12, rtol=1e-12)
        else:
            assert torch.equal(value, before[name]), name


@solvers
def test_batch_norm_moves_once_a_step_as_at_the_improved_weights_and_nothing_else_moves(name):
    for objective in ["simclr", "moco", "byol"]:
        check_batch_norm_moves_once_a_step_as_at_the_improved_weights_and_nothing_else_moves(objective, name)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("composition", ["none", "slow"])
def test_single_level_is_the_sum_of_both_levels_gradients(objective, composition):
    method, clips = tiny_method(objective, composition).train(), tiny_clips()
    weights = leaves(method.trainable_parameters())
    level_gradients = [
        torch.autograd.grad(
            make_level_loss(method, clips, level)(weights), list(weights.values()), materialize_grads=True
        )
        for level in ("inner", "outer")
    ]
    gradient = solve_method(method, clips, "single-level")
    for name, inner, outer in zip(weights, *level_gradients, strict=True):
        torch.testing.assert_close(gradient[name], inner + outer, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("composition", ["none", "slow"])
def test_itd_of_a_method_is_the_gradient_through_its_unrolled_steps_and_aid_fd_is_near(objective, composition):
    method, clips = tiny_method(objective, composition).train(), tiny_clips()
    weights = leaves(method.trainable_parameters())
    end = inner_path(make_level_loss(method, clips, "inner"), weights, 1)[-1]
    loss = make_level_loss(method, clips, "outer")(end)
    grads = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    expected = dict(zip(weights, grads, strict=True))
    torch.testing.assert_close(solve_method(method, clips, "itd-rmad"), expected, atol=1e-9, rtol=1e-9)
    # The step is so small that no ReLU changes its sign.
    approximate = solve_method(method, clips, "aid-fd", difference_step=1e-9)
    size = max(g.abs().max() for g in expected.values())
    assert max((approximate[k] - expected[k]).abs().max() for k in weights) < 1e-4 * size


@solvers
def test_strict_prediction_goes_with_every_solver(name):
    clips = tiny_clips()
    gradients = [
        solve_method(tiny_method("simclr", per_frame_kernels=strict).train(), clips, name) for strict in (False, True)
    ]
    assert all(g.isfinite().all() for g in gradients[1].values())
    kernel = "online.backbone.layers.0.0.weight"
    assert torch.equal(gradients[0][kernel], gradients[1][kernel]) == (name == "plain")


@solvers
def test_solvers_work_under_autocast(name):
    # No decomposition and no norm in the head: more curvature in a network this small amplifies rounding errors.
    method, clips = tiny_method("simclr", "none", norm=False).float().train(), tiny_clips(8).float()
    exact = solve_method(method, clips, name)

    def run(level):
        loss = make_level_loss(method, clips, level)

        def cast(weights):
            with torch.autocast("cpu", torch.bfloat16):
                return loss(weights)

        return cast

    config = SolverConfig(name, inner_lr=INNER_LR, curvature_limit=0.0)
    outer = "both" if name == "single-level" else "outer"
    gradient = hypergradient(run("inner"), run(outer), dict(method.trainable_parameters()), config)
    size = sum(g.square().sum() for g in exact.values()).sqrt()
    error = sum((gradient[k].float() - g).square().sum() for k, g in exact.items()).sqrt()
    assert error < 0.15 * size
    assert all(g.dtype == torch.float32 for g in gradient.values())
