"""`compute_gradients`: the late-layer solvers against unrolled inner steps."""

import copy
from dataclasses import replace

import pytest
import torch
from support.tiny_method import OBJECTIVES, tiny_clips, tiny_method
from torch.func import functional_call

from stillmotion.errors import StillmotionError
from stillmotion.optim.bilevel import LATE_LAYER_SOLVERS, SolverConfig
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig

INNER_LR = 0.05
LATE_PREFIXES = {
    "exact-last-stage": ("online.projector.", "online.backbone.layers.1."),
    "exact-projector": ("online.projector.",),
}


def unrolled_gradient(method, clips, late_prefixes):
    """Return the gradient through one inner step of the late weights; both levels share the early features."""
    weights = {name: w.detach().requires_grad_() for name, w in method.trainable_parameters().items()}
    late_names = [name for name in weights if name.startswith(late_prefixes)]
    backbone, rows = method.online.backbone, clips.flatten(0, 1)

    def features(w):
        backbone_weights = {
            name.removeprefix("online.backbone."): v for name, v in w.items() if name.startswith("online.backbone.")
        }
        return functional_call(backbone, backbone_weights, (rows,))

    def loss(w, level, early):
        return sum(functional_call(method, w, (clips,), {"level": level, "features": early}).losses.values())

    grads = torch.autograd.grad(
        loss(weights, "inner", features(weights)), [weights[k] for k in late_names], create_graph=True
    )
    updated = weights | {k: weights[k] - INNER_LR * g for k, g in zip(late_names, grads, strict=True)}
    outer = loss(updated, "outer", features(updated))
    return dict(zip(weights, torch.autograd.grad(outer, list(weights.values()), materialize_grads=True), strict=True))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("solver", LATE_LAYER_SOLVERS)
def test_a_late_solvers_gradient_is_that_through_its_unrolled_step(objective, solver):
    method, clips = tiny_method(objective).train(), tiny_clips()
    config = PretrainConfig(method=method.config, solver=SolverConfig(solver, inner_lr=INNER_LR, curvature_limit=0.0))
    result = compute_gradients(method, clips, config)[1]
    expected = unrolled_gradient(tiny_method(objective).train(), clips, LATE_PREFIXES[solver])
    torch.testing.assert_close(result, expected, atol=1e-9, rtol=1e-8)


@pytest.mark.parametrize("objective", ["simclr", "byol"])
@pytest.mark.parametrize("solver", LATE_LAYER_SOLVERS)
def test_batch_norms_move_once_a_step(objective, solver):
    method, clips = tiny_method(objective).train(), tiny_clips()
    before = copy.deepcopy(method.state_dict())
    losses, _ = compute_gradients(
        method, clips, PretrainConfig(method=method.config, solver=SolverConfig(solver, inner_steps=2))
    )
    assert list(losses.losses) == ["prediction", "orthogonality", "static", "dynamic"]
    for name, value in method.state_dict().items():
        if name.endswith("num_batches_tracked"):
            assert value == 1, name
        elif "running" not in name:
            assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("solver", LATE_LAYER_SOLVERS)
def test_a_late_solver_on_one_clip_differs_and_works_in_low_precision(solver):
    method = tiny_method("simclr", "none", norm=False, clips_per_video=1).float().train()
    clips = tiny_clips(8).float()
    config = PretrainConfig(method=method.config, solver=SolverConfig(solver))
    exact = compute_gradients(method, clips, config)[1]
    low = compute_gradients(method, clips, replace(config, train=replace(config.train, precision="bf16")))[1]
    size = sum(g.square().sum() for g in exact.values()).sqrt()
    assert sum((low[k] - g).square().sum() for k, g in exact.items()).sqrt() < 0.15 * size
    scaled = compute_gradients(method, clips, config, loss_scale=2.0**10)[1]
    torch.testing.assert_close(scaled, exact, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("solver", LATE_LAYER_SOLVERS)
def test_strict_prediction_is_refused_where_both_levels_share_a_pass(solver):
    method = tiny_method("simclr", per_frame_kernels=True)
    with pytest.raises(StillmotionError, match=f"{solver} shares one backbone pass .* Use --solver.name itd-rmad"):
        compute_gradients(method, tiny_clips(), PretrainConfig(method=method.config, solver=SolverConfig(solver)))
