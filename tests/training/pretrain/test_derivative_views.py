"""Runs with derivative views: the schedule goes by epoch and step, alone, on two processes and after a stop."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.process import Command, two_ranks
from support.run_comparison import assert_same_run, load_weights
from support.small_pretrain import small_config, train
from torch import Tensor

from stillmotion.encoders import load
from stillmotion.methods.static_dynamic import StaticDynamicConfig
from stillmotion.methods.views import DerivativeOrders, TemporalViews, ViewsConfig
from stillmotion.optim.bilevel import SolverConfig
from stillmotion.training.pretrain import task as module
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.recipes_vididi import TABLE_6_SCHEDULES
from stillmotion.training.run_dir import load_config
from stillmotion.training.run_log import load_metrics

EIGHT = {"optim.epochs": 8}
SIMCLR = "ucf101-vididi-simclr-r3d_18"
# Derivative views and a Koopman decomposition with its inner level, which no paper has.
BOD_VCL = {
    "method.model.per_frame_features": True,
    "method.static_dynamic": StaticDynamicConfig(),
    "method.prediction.clips_per_video": 1,
    "solver": SolverConfig(name="first-order", inner_lr=0.003),
}
BOD_VCL_OPTIONS = (
    "--method.model.per-frame-features --method.static-dynamic.method slow --method.prediction.clips-per-video 1 "
    "--solver.name first-order --solver.inner-lr 0.003"
)
RANDOM_HUE = {"method.views": ViewsConfig("alternate", derivative_color="random-hue")}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DerivativeOrders, int, int]]:
    """What runs show from now on: orders, and frames before and after."""
    shown: list[tuple[DerivativeOrders, int, int]] = []
    show = TemporalViews.__call__

    def noted(self: TemporalViews, clips: Tensor, orders: DerivativeOrders, colours: Tensor | None = None) -> Tensor:
        views = show(self, clips, orders, colours)
        shown.append((orders, clips.shape[3], views.shape[3]))
        return views

    monkeypatch.setattr(TemporalViews, "__call__", noted)
    return shown


def scheduled(config: PretrainConfig, *, steps: int = 2) -> list[DerivativeOrders]:
    """The orders of every step."""
    views, seed = config.method.views.build(), config.train.seed
    return [views.draw_orders(seed=seed, epoch=e, step=s) for e in range(config.optim.epochs) for s in range(steps)]


@pytest.mark.parametrize("schedule", TABLE_6_SCHEDULES)
def test_a_run_shows_its_schedule_in_clips_of_the_asked_length(
    schedule: str, tmp_path: Path, seen: list[tuple[DerivativeOrders, int, int]]
) -> None:
    config = small_config(f"ucf101-vididi-{schedule}", EIGHT)
    run = train(config, tmp_path)
    assert [orders for orders, *_ in seen] == scheduled(config)
    extra = 0 if schedule == "base" else 2
    assert {(before, after) for _, before, after in seen} == {(4 + extra, 4)}
    assert all(w.isfinite().all() for w in load_weights(run).values())


def test_the_parts_of_an_accumulated_batch_show_the_same(
    tmp_path: Path, seen: list[tuple[DerivativeOrders, int, int]]
) -> None:
    config = small_config("ucf101-vididi-simclr-r3d_18", EIGHT | {"train.grad_accum_steps": 2})
    train(config, tmp_path)
    assert [orders for orders, *_ in seen] == [orders for orders in scheduled(config) for _ in range(2)]


@pytest.mark.parametrize(
    ("name", "changes"),
    [("ucf101-vididi-byol-r3d_18", {}), (SIMCLR, BOD_VCL), (SIMCLR, BOD_VCL | RANDOM_HUE)],
)
def test_a_stopped_run_goes_on_in_its_schedule_bit_for_bit(
    name: str,
    changes: dict[str, Any],
    tmp_path: Path,
    seen: list[tuple[DerivativeOrders, int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = small_config(name, changes | {"optim.epochs": 4})
    whole = train(config, tmp_path / "whole")
    expected, solve = list(seen), module.compute_gradients
    seen.clear()
    for stop_after in (3, 2):
        calls = iter(range(stop_after))

        def stopped(*arguments: Any, calls: Any = calls, **options: Any) -> Any:
            if next(calls, None) is None:
                seen.pop()  # this step will be done again
                raise KeyboardInterrupt
            return solve(*arguments, **options)

        monkeypatch.setattr(module, "compute_gradients", stopped)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "stopped")
    monkeypatch.setattr(module, "compute_gradients", solve)
    again = train(config, tmp_path / "stopped")
    assert seen == expected
    assert_same_run(whole, again)


@pytest.mark.slow
@pytest.mark.parametrize(
    "decomposed",
    [
        "",
        f"{BOD_VCL_OPTIONS} --method.views.schedule alternate --method.views.derivative-color random-hue "
        "--optim.lr 0.002",
    ],
    ids=["whole", "random hue"],
)
def test_two_processes_show_and_learn_what_one_does_with_the_joined_batch(decomposed: str, tmp_path: Path) -> None:
    """With a transformer and no batch norm, in which differences of rounding grow little."""
    network = (
        "--method.model.backbone small_vit --method.model.projector-hidden-dim 16 "
        "--method.model.no-projector-batch-norm"
    )
    size = "--method.model.stage-channels --data.image-size 16 --data.num-frames 8 --data.synthetic.num-videos 16"
    rates = "--optim.name sgd --optim.lr 0.5 --optim.batch-size 8 --optim.epochs 4"
    options = f"{size} {network} {rates} {decomposed} --train.num-threads 1 --out {tmp_path / 'two'}".split()
    for rank in two_ranks("pretrain", "--recipe", SIMCLR, "--debug", *options):
        rank.expect_success()
    train(load_config(tmp_path / "two", PretrainConfig), tmp_path / "one")
    torch.testing.assert_close(load_weights(tmp_path / "two"), load_weights(tmp_path / "one"), rtol=1e-4, atol=1e-6)
    half = "loss/dynamic" if decomposed else "loss/whole"
    ours, theirs = (load_metrics(tmp_path / run)[half] for run in ("one", "two"))
    assert theirs == [(step, pytest.approx(value, rel=1e-4)) for step, value in ours]


def test_the_encoder_of_such_a_run_takes_frames_as_they_are(tmp_path: Path) -> None:
    config = small_config("ucf101-vididi-simclr-r3d_18")
    encoder = load(train(config, tmp_path))
    assert encoder.input_config.num_frames == 4
    assert encoder(torch.randn(2, 3, 4, 16, 16)).frames.shape == (2, 2, 8)  # its network has its strides in time


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_derivative_views_and_a_koopman_split_run_as_typed(ranks: int, tmp_path: Path) -> None:
    size = (
        "--data.image-size 16 --data.num-frames 4 --data.synthetic.num-videos 16 --optim.batch-size 8 "
        "--train.num-threads 1"
    )
    line = (
        f"pretrain --recipe {SIMCLR} --debug {BOD_VCL_OPTIONS} --data.clips-per-video 4 {size} --out {tmp_path}".split()
    )
    for command in two_ranks(*line) if ranks == 2 else (Command(*line),):
        command.expect_success()
    curves = load_metrics(tmp_path)
    assert {"loss/static", "loss/dynamic", "loss/prediction", "loss/orthogonality"} <= set(curves)
    assert len(curves["loss/static"]) == 8
