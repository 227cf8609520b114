"""Optimisers of the recipes, and the learning rate over a run."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.optim.optimizers import OptimConfig, build_optimizer, lr_at_epoch, set_lr

PAPER = OptimConfig(lr=1.2, lr_batch_size=64, batch_size=64, epochs=200, warmup_epochs=35, warmup_start_lr=1e-3)


def weights() -> dict[str, torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"conv": (4, 3, 1, 2, 2), "conv.bias": (4,), "norm": (4,), "linear": (2, 4), "scale": ()}
    return {k: torch.nn.Parameter(torch.randn(s, generator=generator)) for k, s in shapes.items()}


def weights_after_steps(
    optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Return the weights after three steps with the same gradients for every optimizer."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for p in parameters.values():
            p.grad = torch.randn(p.shape, generator=generator)
        optimizer.step()
    return {k: p.detach() for k, p in parameters.items()}


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_sgd_and_adamw_are_torchs_own_and_decay_matrices_only(name: str) -> None:
    ours, theirs = weights(), weights()
    optimizer = build_optimizer(ours, OptimConfig(name=name, lr=0.1, weight_decay=0.2))  # type: ignore[arg-type]
    matrices = [theirs["conv"], theirs["linear"]]
    groups = [
        {"params": matrices, "weight_decay": 0.2},
        {"params": [theirs["conv.bias"], theirs["norm"], theirs["scale"]], "weight_decay": 0.0},
    ]
    reference = (
        torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True)
        if name == "sgd"
        else torch.optim.AdamW(groups, lr=0.1)
    )
    torch.testing.assert_close(
        weights_after_steps(optimizer, ours), weights_after_steps(reference, theirs), rtol=0, atol=0
    )


def test_every_weight_is_in_one_group() -> None:
    for name in ("sgd", "lars", "adamw"):
        of = weights()
        groups = build_optimizer(of, OptimConfig(name=name)).param_groups  # type: ignore[arg-type]
        assert sorted(id(p) for g in groups for p in g["params"]) == sorted(id(p) for p in of.values())


def test_warm_up_rises_in_a_line_from_its_start_to_the_cosine() -> None:
    assert lr_at_epoch(PAPER, 0) == pytest.approx(1e-3)
    end = 1.2 * 0.5 * (1 + math.cos(math.pi * 35 / 200))
    assert lr_at_epoch(PAPER, 35) == pytest.approx(end)
    assert lr_at_epoch(PAPER, 35 - 1e-9) == pytest.approx(end)
    assert lr_at_epoch(PAPER, 17.5) == pytest.approx((1e-3 + end) / 2)


def test_the_cosine_is_counted_from_epoch_0_and_ends_at_zero() -> None:
    for epoch in (40.0, 100.0, 150.5, 199.0):
        assert lr_at_epoch(PAPER, epoch) == pytest.approx(1.2 * 0.5 * (1 + math.cos(math.pi * epoch / 200)))
    assert lr_at_epoch(PAPER, 100) == pytest.approx(0.6)
    assert lr_at_epoch(PAPER, 200) == pytest.approx(0, abs=1e-12)
    assert lr_at_epoch(replace(PAPER, warmup_epochs=0), 0) == pytest.approx(1.2)


def test_warm_up_does_not_begin_above_the_rate_itself() -> None:
    low = replace(PAPER, lr=1e-4)
    assert lr_at_epoch(low, 0) == pytest.approx(1e-4)


@given(epoch=st.floats(0, 200), batch=st.integers(1, 4096))
def test_rates_grow_with_the_batch_and_0_takes_them_as_they_are(epoch: float, batch: int) -> None:
    base = lr_at_epoch(PAPER, epoch)
    assert lr_at_epoch(replace(PAPER, batch_size=batch), epoch) == pytest.approx(base * batch / 64)
    assert lr_at_epoch(replace(PAPER, batch_size=batch, lr_batch_size=0), epoch) == pytest.approx(base)


@given(epoch=st.floats(0, 200))
def test_the_rate_is_never_negative_nor_above_the_configured_one(epoch: float) -> None:
    assert -1e-12 <= lr_at_epoch(PAPER, epoch) <= 1.2


def test_a_cosine_that_is_counted_from_the_warm_ups_end_reaches_the_rate() -> None:
    late = replace(PAPER, cosine_start="after-warmup")
    assert [lr_at_epoch(late, epoch) for epoch in (0, 17.5, 35)] == pytest.approx([1e-3, (1e-3 + 1.2) / 2, 1.2])
    assert lr_at_epoch(late, (35 + 200) / 2) == pytest.approx(0.6)
    assert lr_at_epoch(late, 200) == pytest.approx(0, abs=1e-12)
    short = replace(late, epochs=2, warmup_epochs=3)
    assert lr_at_epoch(short, 1.5) == pytest.approx((1e-3 + 1.2) / 2)


def test_milestones_take_the_place_of_the_cosine() -> None:
    steps = OptimConfig(lr=0.2, lr_batch_size=0, epochs=100, warmup_epochs=0, milestones=(60, 80), gamma=0.1)
    rates = [lr_at_epoch(steps, epoch) for epoch in (0, 59.99, 60, 79.99, 80, 99)]
    assert rates == pytest.approx([0.2, 0.2, 0.02, 0.02, 0.002, 0.002])


def test_a_warm_up_rises_to_the_first_step() -> None:
    steps = OptimConfig(lr=0.4, lr_batch_size=0, epochs=10, warmup_epochs=2, warmup_start_lr=0.0, milestones=(6,))
    assert [lr_at_epoch(steps, epoch) for epoch in (0, 1, 2, 6)] == pytest.approx([0.0, 0.2, 0.4, 0.04])


@pytest.mark.parametrize("name", ["sgd", "lars", "adamw"])
def test_stages_further_down_learn_at_a_decayed_rate(name: str) -> None:
    of = weights()
    config = OptimConfig(name=name, layer_decay=0.5)  # type: ignore[arg-type]
    optimizer = build_optimizer(of, config, layer_depth=lambda weight: 2 if weight.startswith("conv") else 0)
    set_lr(optimizer, 0.8)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert {k: rates[id(p)] for k, p in of.items()} == pytest.approx(
        {"conv": 0.2, "conv.bias": 0.2, "norm": 0.8, "linear": 0.8, "scale": 0.8}
    )
