import subprocess
import sys
from dataclasses import replace

import pytest
import safetensors.torch
import torch

import stillmotion
from stillmotion import StillmotionError
from stillmotion.encoders import load
from stillmotion.methods.method import Method
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.run_dir import load_config
from stillmotion.training.tasks import get_recipe


def test_a_run_gives_its_online_backbone(run):
    saved = safetensors.torch.load_file(run / "checkpoint.safetensors")
    encoder = load(run)
    assert encoder.origin.pretrain_config == load_config(run, PretrainConfig)
    assert (encoder.run_dir, encoder.origin.spec, encoder.name) == (run, str(run), "run")
    for name, value in encoder.backbone.state_dict().items():
        assert torch.equal(value, saved[f"online.backbone.{name}"])


def test_untrained_is_the_network_that_the_run_started_from(run):
    config, trained = load_config(run, PretrainConfig), load(f"{run}@frames=4")
    before = torch.get_rng_state()
    encoder = trained.untrained()
    result = encoder.backbone.state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    assert not encoder.training
    assert encoder.input_config.num_frames == 4
    torch.manual_seed(config.train.seed)
    expected = Method(config.method).online.backbone.state_dict()
    assert all(torch.equal(result[name], value) for name, value in expected.items())


def test_a_recipe_gives_its_untrained_network():
    result = load("debug:k400-bod-simclr")
    assert result.origin.pretrain_config == get_recipe("k400-bod-simclr", debug=True)
    expected = result.untrained().state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in result.state_dict().items())
    assert (result.run_dir, result.synthetic_config, result.seed) == (
        None,
        result.origin.pretrain_config.data.synthetic,
        0,
    )


def test_the_same_network_can_get_other_clips(run):
    encoder = load(run)
    changed = encoder.with_input(num_frames=5, image_size=24)
    assert changed.input_config == replace(encoder.input_config, num_frames=5, image_size=24)
    assert encoder.input_config.num_frames == 8
    assert changed.backbone is encoder.backbone
    with pytest.raises(StillmotionError, match="stride is -1"):
        encoder.with_input(stride=-1)


def test_a_run_without_a_checkpoint_is_an_error(run):
    (run / "checkpoint.safetensors").unlink()
    with pytest.raises(StillmotionError, match=r"no checkpoint\.safetensors yet"):
        stillmotion.load(run)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, stillmotion; print([m for m in ('torch', 'sklearn', 'matplotlib') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="nothing"):
        getattr(stillmotion, "nothing")  # noqa: B009 (mypy knows that there is none)
