import json
import subprocess
import sys

import pytest
import safetensors.torch
import torch

import stillmotion
from stillmotion import Embedding, Encoder, StillmotionError
from stillmotion.config import load_config
from stillmotion.encoders.load import load_encoder, untrained
from stillmotion.methods.method import Method
from stillmotion.recipes import recipe


def test_load_gives_an_encoder_whose_embedding_has_two_halves(run):
    encoder = stillmotion.load(run)
    assert isinstance(encoder, Encoder)
    assert not encoder.training
    clips = torch.randn(2, 3, 8, 32, 32)
    with torch.no_grad():
        found = encoder(clips)
    assert isinstance(found, Embedding)
    assert found.whole.shape == found.static.shape == found.dynamic.shape == (2, 32)
    assert found.frames.shape == (2, 8, 32)


def test_a_run_gives_its_online_backbone(run):
    saved = safetensors.torch.load_file(run / "checkpoint.safetensors")
    encoder, config = load_encoder(run)
    assert config == load_config(run)
    for name, value in encoder.backbone.state_dict().items():
        assert torch.equal(value, saved[f"online.backbone.{name}"])


def test_untrained_is_the_network_that_the_run_started_from(run):
    config = load_config(run)
    before = torch.get_rng_state()
    found = untrained(config).backbone.state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(config.train.seed)
    wanted = Method(config.method).online.backbone.state_dict()
    assert all(torch.equal(found[name], value) for name, value in wanted.items())


def test_a_recipe_gives_its_untrained_network():
    found, config = load_encoder("debug-bod-simclr")
    assert config == recipe("debug-bod-simclr")
    wanted = untrained(config).state_dict()
    assert all(torch.equal(value, wanted[name]) for name, value in found.state_dict().items())


def test_weights_of_another_network_are_refused(run):
    config = json.loads((run / "config.json").read_text())
    config["method"]["model"]["channels"] = [8, 16, 24]
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(StillmotionError, match="does not fit"):
        load_encoder(run)


def test_what_is_no_run_is_said(run, tmp_path):
    with pytest.raises(StillmotionError, match="neither a run folder nor a recipe"):
        stillmotion.load(tmp_path / "nowhere")
    with pytest.raises(StillmotionError, match="no config"):
        stillmotion.load(tmp_path)
    (run / "checkpoint.safetensors").unlink()
    with pytest.raises(StillmotionError, match=r"no checkpoint\.safetensors yet"):
        stillmotion.load(run)


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, stillmotion; print([m for m in ('torch', 'sklearn', 'matplotlib') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="nothing"):
        _ = stillmotion.nothing
