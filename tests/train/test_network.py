"""A network as it is trained: compiled, in another layout or in another precision it is the same one."""

import copy
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
import two_processes
from small_run import small, stopping, trained
from tiny import tiny_clips, tiny_method

from stillmotion.config import Config
from stillmotion.config.base import TrainConfig
from stillmotion.config.files import read_config
from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones import create_backbone
from stillmotion.optim.bilevel import TWICE, How, SolverConfig
from stillmotion.train import folder as folders
from stillmotion.train import network
from stillmotion.train.folder import settled
from stillmotion.train.log import read_metrics
from stillmotion.train.precision import autocast, chosen
from stillmotion.train.process import computing
from stillmotion.train.solve import solve

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ONCE = tuple(how for how in get_args(How) if how not in TWICE)


@pytest.fixture
def uncompiled_code(monkeypatch):
    """What is compiled is traced and differentiated as ever, and its operations are run one by one: no compiler."""
    monkeypatch.setattr(network, "BACKEND", "aot_eager")
    torch._dynamo.reset()


def solved(how, *, compiled, share=slice(None)):
    method = tiny_method("simclr").train()
    network.readied(method, method.online.backbone, TrainConfig(compile=compiled), CPU)
    config = Config(method=method.config, solver=SolverConfig(how, inner_lr=0.01))
    return solve(method, tiny_clips(4, 2)[share], config)


@pytest.mark.parametrize("how", ONCE)
def test_a_compiled_backbone_has_the_losses_and_gradients_of_the_eager_one(uncompiled_code, how):
    (losses, gradient), (wanted, exact) = (solved(how, compiled=compiled) for compiled in (True, False))
    torch.testing.assert_close(losses.parts, wanted.parts)
    torch.testing.assert_close(gradient, exact)


def on_a_rank(rank):
    network.BACKEND = "aot_eager"
    warnings.filterwarnings("ignore", message="The .grad attribute")  # of what dynamo looks at itself
    return solved("exact-head", compiled=True, share=slice(2 * rank, 2 * rank + 2))[1]


def test_two_processes_with_compiled_backbones_and_joint_norms_give_the_gradient_of_one():
    wanted = solved("exact-head", compiled=False)[1]
    for found in two_processes.run(on_a_rank):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-9)


def test_a_compiled_run_has_the_names_and_the_curves_of_an_eager_one(uncompiled_code, tmp_path):
    eager, compiled = (
        trained(small("debug-simclr", {"train.compile": compiled}), tmp_path / str(compiled))
        for compiled in (False, True)
    )
    names = [list(torch.load(run / "state.pt", weights_only=True)["module"]) for run in (eager, compiled)]
    assert names[0] == names[1]
    wanted = read_metrics(eager)["loss/whole"]
    assert read_metrics(compiled)["loss/whole"] == [(step, pytest.approx(loss, rel=1e-4)) for step, loss in wanted]


@pytest.mark.parametrize("how", TWICE)
def test_solvers_that_differentiate_the_backbone_twice_are_not_compiled_and_others_are_named(how):
    with pytest.raises(StillmotionError, match=f"solver.how is {how}, .* or choose {', '.join(ONCE)}"):
        Config(train=TrainConfig(compile=True), solver=SolverConfig(how))


def test_compiling_and_checkpointing_do_not_go_together():
    with pytest.raises(StillmotionError, match="do not go together"):
        TrainConfig(compile=True, checkpointing=True)


def test_without_a_compiler_it_is_said_before_the_first_step(monkeypatch):
    from torch._inductor import cpp_builder

    def none() -> str:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    with pytest.raises(StillmotionError, match="there is no compiler; install g\\+\\+"):
        solved("plain", compiled=True)


@pytest.mark.parametrize("name", ["small_resnet3d", "s3d_g", "i3d"])
def test_with_channels_last_outputs_gradients_and_states_are_the_same(name):
    torch.manual_seed(0)
    plain = create_backbone(name).double().train()
    other = copy.deepcopy(plain)
    network.lay_out(other, CUDA)
    clips = torch.randn(1, 3, 2, 32, 32, dtype=torch.float64)
    found, wanted = other(clips), plain(clips)
    torch.testing.assert_close(found, wanted)
    for features in (found, wanted):
        features.square().mean().backward()
    for (key, p), q in zip(plain.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad, msg=key)
    torch.testing.assert_close(dict(other.state_dict()), dict(plain.state_dict()))


def test_the_layout_is_chosen_for_convolutional_networks_on_cuda_alone():
    for name in ("small_resnet3d", "s3d", "i3d", "small_vit", "tokens_cnn"):
        backbone = create_backbone(name)
        before = backbone.layout
        network.lay_out(backbone, CPU)
        assert backbone.layout == before
        network.lay_out(backbone, CUDA)
        assert (backbone.layout == torch.channels_last_3d) == ("vit" not in name)


def test_auto_is_bf16_where_cuda_has_it_and_fp32_elsewhere(monkeypatch):
    assert chosen(CPU, "auto") == "fp32"
    assert not autocast(CPU, "auto")._enabled
    for has, precision in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, has=has: has)
        assert chosen(CUDA, "auto") == precision
        assert chosen(CUDA, "fp16") == "fp16"


def test_a_run_keeps_the_precision_that_auto_was_when_it_began_and_says_so(tmp_path: Path, monkeypatch, capsys):
    config = small("debug-simclr")
    assert config.train.precision == "auto"
    with monkeypatch.context() as elsewhere, stopping(1, 2):
        elsewhere.setattr(folders, "chosen", lambda device, precision: "bf16")
        trained(config, tmp_path)
    assert read_config(tmp_path, Config).train.precision == "bf16"
    capsys.readouterr()
    trained(config, tmp_path)
    assert f"{tmp_path} goes on in bf16, as it began; a new run on this cpu has fp32" in capsys.readouterr().out
    assert read_config(tmp_path, Config).train.precision == "bf16"
    asked = replace(config, train=replace(config.train, precision="fp16"))
    assert settled(asked, tmp_path, CPU) is asked


def test_determinism_is_asked_for_within_a_run_and_not_beyond_it():
    def flags():
        cudnn = torch.backends.cudnn
        return cudnn.deterministic, cudnn.benchmark, torch.are_deterministic_algorithms_enabled()

    before, workspace = flags(), os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    with computing(TrainConfig(deterministic=True, device="cpu")):
        assert flags() == (True, False, True)
        assert torch.is_deterministic_algorithms_warn_only_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"]
    assert flags() == before
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == workspace
    with computing(TrainConfig(device="cpu")):
        assert flags() == before
