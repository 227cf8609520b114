"""Runs with derivative views: the schedule depends on epoch and step, on one and two processes and after a stop."""

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

EIGHT_EPOCHS = {"optim.epochs": 8}
SIMCLR = "ucf101-vididi-simclr-r3d_18"
# Derivative views together with a Koopman decomposition and its inner level, a combination that is in no paper.
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
def recorded_views(monkeypatch: pytest.MonkeyPatch) -> list[tuple[DerivativeOrders, int, int]]:
    """Record the orders of all views from now on, and the number of frames before and after."""
    records: list[tuple[DerivativeOrders, int, int]] = []
    original_call = TemporalViews.__call__

    def recording_call(
        self: TemporalViews, clips: Tensor, orders: DerivativeOrders, colours: Tensor | None = None
    ) -> Tensor:
        views = original_call(self, clips, orders, colours)
        records.append((orders, clips.shape[3], views.shape[3]))
        return views

    monkeypatch.setattr(TemporalViews, "__call__", recording_call)
    return records


def scheduled_orders(config: PretrainConfig, *, steps: int = 2) -> list[DerivativeOrders]:
    """Return the orders of every step."""
    views, seed = config.method.views.build(), config.train.seed
    return [views.draw_orders(seed=seed, epoch=e, step=s) for e in range(config.optim.epochs) for s in range(steps)]


@pytest.mark.parametrize("schedule", TABLE_6_SCHEDULES)
def test_a_run_shows_its_schedule_in_clips_of_the_asked_length(
    schedule: str, tmp_path: Path, recorded_views: list[tuple[DerivativeOrders, int, int]]
) -> None:
    config = small_config(f"ucf101-vididi-{schedule}", EIGHT_EPOCHS)
    run = train(config, tmp_path)
    assert [orders for orders, *_ in recorded_views] == scheduled_orders(config)
    extra = 0 if schedule == "base" else 2
    assert {(before, after) for _, before, after in recorded_views} == {(4 + extra, 4)}
    assert all(w.isfinite().all() for w in load_weights(run).values())


def test_the_parts_of_an_accumulated_batch_show_the_same(
    tmp_path: Path, recorded_views: list[tuple[DerivativeOrders, int, int]]
) -> None:
    config = small_config("ucf101-vididi-simclr-r3d_18", EIGHT_EPOCHS | {"train.grad_accum_steps": 2})
    train(config, tmp_path)
    assert [orders for orders, *_ in recorded_views] == [
        orders for orders in scheduled_orders(config) for _ in range(2)
    ]


@pytest.mark.parametrize(
    ("name", "changes"),
    [("ucf101-vididi-byol-r3d_18", {}), (SIMCLR, BOD_VCL), (SIMCLR, BOD_VCL | RANDOM_HUE)],
)
def test_a_stopped_run_goes_on_in_its_schedule_bit_for_bit(
    name: str,
    changes: dict[str, Any],
    tmp_path: Path,
    recorded_views: list[tuple[DerivativeOrders, int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = small_config(name, changes | {"optim.epochs": 4})
    uninterrupted = train(config, tmp_path / "whole")
    expected, solve = list(recorded_views), module.compute_gradients
    recorded_views.clear()
    for stop_after in (3, 2):
        calls = iter(range(stop_after))

        def interrupting_solver(*arguments: Any, calls: Any = calls, **options: Any) -> Any:
            if next(calls, None) is None:
                recorded_views.pop()  # this step will be repeated
                raise KeyboardInterrupt
            return solve(*arguments, **options)

        monkeypatch.setattr(module, "compute_gradients", interrupting_solver)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "stopped")
    monkeypatch.setattr(module, "compute_gradients", solve)
    resumed = train(config, tmp_path / "stopped")
    assert recorded_views == expected
    assert_same_run(uninterrupted, resumed)


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
    """Uses a transformer without batch norm, in which rounding errors grow slowly."""
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
    loss_name = "loss/dynamic" if decomposed else "loss/whole"
    one_rank, two_rank_curve = (load_metrics(tmp_path / run)[loss_name] for run in ("one", "two"))
    assert two_rank_curve == [(step, pytest.approx(value, rel=1e-4)) for step, value in one_rank]


def test_the_encoder_of_such_a_run_takes_frames_as_they_are(tmp_path: Path) -> None:
    config = small_config("ucf101-vididi-simclr-r3d_18")
    encoder = load(train(config, tmp_path))
    assert encoder.input_config.num_frames == 4
    assert encoder(torch.randn(2, 3, 4, 16, 16)).frames.shape == (2, 2, 8)  # the network has a stride of 2 in time


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
