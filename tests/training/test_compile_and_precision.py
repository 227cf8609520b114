"""Compilation, memory layout and precision do not change what a network computes."""

import copy
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from support import gloo
from support.small_pretrain import small_config, stop_at_step, train
from support.tiny_method import tiny_clips, tiny_method

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone
from stillmotion.optim.bilevel import SECOND_ORDER_SOLVERS, SolverConfig, SolverName
from stillmotion.training import run_dir as folders
from stillmotion.training import run_setup
from stillmotion.training.config import TrainConfig
from stillmotion.training.pretrain.batch_gradients import compute_gradients
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config, resolve_run_precision
from stillmotion.training.run_log import load_metrics
from stillmotion.training.runtime import training_session
from stillmotion.utils.device import autocast, resolve_precision

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
FIRST_ORDER_SOLVERS = tuple(solver for solver in get_args(SolverName) if solver not in SECOND_ORDER_SOLVERS)


@pytest.fixture
def uncompiled_code(monkeypatch):
    """Compile by tracing and differentiating only; operations run one by one, so that no C++ compiler is needed."""
    monkeypatch.setattr(run_setup, "COMPILE_BACKEND", "aot_eager")
    torch._dynamo.reset()


def compute_losses_and_gradients(solver, *, compiled, videos=slice(None)):
    method = tiny_method("simclr").train()
    run_setup.prepare_model(method, method.online.backbone, TrainConfig(compile=compiled), CPU)
    config = PretrainConfig(method=method.config, solver=SolverConfig(solver, inner_lr=0.01))
    return compute_gradients(method, tiny_clips(4, 2)[videos], config)


@pytest.mark.slow
@pytest.mark.parametrize("solver", FIRST_ORDER_SOLVERS)
def test_a_compiled_backbone_has_the_losses_and_gradients_of_the_eager_one(uncompiled_code, solver):
    (losses, gradient), (expected, exact) = (
        compute_losses_and_gradients(solver, compiled=compiled) for compiled in (True, False)
    )
    torch.testing.assert_close(losses.losses, expected.losses)
    torch.testing.assert_close(gradient, exact)


def gradient_on_rank(rank):
    run_setup.COMPILE_BACKEND = "aot_eager"
    warnings.filterwarnings("ignore", message="The .grad attribute")  # raised by dynamo's own inspection
    return compute_losses_and_gradients("exact-projector", compiled=True, videos=slice(2 * rank, 2 * rank + 2))[1]


@pytest.mark.slow
def test_two_processes_with_compiled_backbones_and_joint_norms_give_the_gradient_of_one():
    expected = compute_losses_and_gradients("exact-projector", compiled=False)[1]
    for result in gloo.run_on_ranks(gradient_on_rank):
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_a_compiled_run_has_the_names_and_the_curves_of_an_eager_one(uncompiled_code, tmp_path):
    eager, compiled = (
        train(small_config("k400-simclr", {"train.compile": compiled}), tmp_path / str(compiled))
        for compiled in (False, True)
    )
    names = [list(torch.load(run / "training_state.pt", weights_only=True)["model"]) for run in (eager, compiled)]
    assert names[0] == names[1]
    expected = load_metrics(eager)["loss/whole"]
    assert load_metrics(compiled)["loss/whole"] == [(step, pytest.approx(loss, rel=1e-4)) for step, loss in expected]


@pytest.mark.parametrize("solver", SECOND_ORDER_SOLVERS)
def test_solvers_that_differentiate_the_backbone_twice_are_not_compiled_and_others_are_named(solver):
    with pytest.raises(
        StillmotionError, match=f"Solver {solver} differentiates .* one of {', '.join(FIRST_ORDER_SOLVERS)}"
    ):
        PretrainConfig(train=TrainConfig(compile=True), solver=SolverConfig(solver))


def test_a_missing_compiler_is_an_error_before_the_first_step(monkeypatch):
    from torch._inductor import cpp_builder

    def no_compiler() -> str:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", no_compiler)
    with pytest.raises(StillmotionError, match=r"none was found\. Install g\+\+"):
        compute_losses_and_gradients("plain", compiled=True)


@pytest.mark.parametrize("name", ["small_cnn3d", "s3d_g", "i3d"])
def test_with_channels_last_outputs_gradients_and_states_are_the_same(name):
    torch.manual_seed(0)
    backbone = create_backbone(name).double().train()
    channels_last = copy.deepcopy(backbone)
    run_setup.use_channels_last(channels_last, CUDA)
    clips = torch.randn(1, 3, 2, 32, 32, dtype=torch.float64)
    result, expected = channels_last(clips), backbone(clips)
    torch.testing.assert_close(result, expected)
    for features in (result, expected):
        features.square().mean().backward()
    for (key, p), q in zip(backbone.named_parameters(), channels_last.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, msg=key)
    torch.testing.assert_close(dict(channels_last.state_dict()), dict(backbone.state_dict()))


def test_the_layout_is_chosen_for_convolutional_networks_on_cuda_alone():
    for name in ("small_cnn3d", "s3d", "i3d", "small_vit", "tokens_cnn"):
        backbone = create_backbone(name)
        before = backbone.memory_format
        run_setup.use_channels_last(backbone, CPU)
        assert backbone.memory_format == before
        run_setup.use_channels_last(backbone, CUDA)
        assert (backbone.memory_format == torch.channels_last_3d) == ("vit" not in name)


def test_auto_is_bf16_where_cuda_has_it_and_fp32_elsewhere(monkeypatch):
    assert resolve_precision(CPU, "auto") == "fp32"
    assert not autocast(CPU, "auto")._enabled
    for has, precision in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has: has)
        assert resolve_precision(CUDA, "auto") == precision
        assert resolve_precision(CUDA, "fp16") == "fp16"


def test_a_run_keeps_the_precision_that_auto_was_when_it_began_and_says_so(tmp_path: Path, monkeypatch, caplog):
    config = small_config("k400-simclr")
    assert config.train.precision == "auto"
    with monkeypatch.context() as elsewhere, stop_at_step(1, 2):
        elsewhere.setattr(folders, "resolve_precision", lambda device, precision: "bf16")
        train(config, tmp_path)
    assert load_config(tmp_path, PretrainConfig).train.precision == "bf16"
    caplog.clear()
    train(config, tmp_path)
    assert (
        f"Resuming {tmp_path} in bf16, the precision it started with (a new run on cpu would use fp32)" in caplog.text
    )
    assert load_config(tmp_path, PretrainConfig).train.precision == "bf16"
    fp16_config = replace(config, train=replace(config.train, precision="fp16"))
    assert resolve_run_precision(fp16_config, tmp_path, CPU) is fp16_config


def test_determinism_is_asked_for_within_a_run_and_not_beyond_it():
    def flags():
        cudnn = torch.backends.cudnn
        return cudnn.deterministic, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()

    before, workspace = flags(), os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    with training_session(TrainConfig(deterministic=True, device="cpu")):
        assert flags() == (True, False, True)
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert flags() == before
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == workspace
    with training_session(TrainConfig(device="cpu")):
        assert flags() == before
