"""Models are loaded by name from a hub on loopback and from the cache."""

import json

import huggingface_hub
import pytest
import torch
from support.fake_hub import fake_hub
from support.tiny_transformers import save_model

from stillmotion.encoders import load, parse_spec
from stillmotion.errors import StillmotionError
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig, load_image_model, resolve_image_model
from stillmotion.models.pretrained.hub import download_model, is_hub_name


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub with one model and an empty cache; returns the list of requests."""
    monkeypatch.chdir(tmp_path)
    save_model("dinov2", tmp_path / "there" / "someone" / "small")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with fake_hub(tmp_path / "there") as (address, requests):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        template = address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield requests


def requests_for(requests, name):
    """Return the requests for a model."""
    return [line for line in requests if name in line]


def test_a_name_is_fetched_once_and_then_taken_from_the_cache(hub, tmp_path, monkeypatch):
    expected = load(tmp_path / "there" / "someone" / "small").backbone.state_dict()
    first = load("someone/small@size=28")
    assert (first.origin.kind, first.origin.spec, first.input_config.image_size) == ("hub", "someone/small@size=28", 28)
    assert requests_for(hub, "someone/small")
    hub.clear()
    second = load("someone/small")
    tokens = load_image_model(ImageModelConfig(path="someone/small"))
    assert not requests_for(hub, "someone/small")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # an unreachable address
    for result in (first, second, load("someone/small")):
        for name, value in result.backbone.state_dict().items():
            assert torch.equal(value, expected[name]), name
    assert tokens.model_type == "dinov2"


def test_a_run_notes_the_very_folder_that_a_name_stands_for(hub, tmp_path):
    placed = resolve_image_model(ImageModelConfig(path="someone/small@layer=1"))
    assert placed == ImageModelConfig(path=str(download_model("someone/small").resolve()), layer=1)
    assert placed.path.startswith(str(tmp_path / "cache"))


def test_paths_win_over_names(hub, tmp_path):
    save_model("vit", tmp_path / "someone" / "small")
    assert parse_spec("someone/small").kind == "transformers"
    assert load("someone/small").backbone.model_type == "vit"
    assert not is_hub_name("someone/other")  # an existing folder, and a misspelled name
    assert not hub


def test_what_is_not_there_is_one_line(hub, monkeypatch):
    with pytest.raises(StillmotionError, match=r"^no/model is not a local folder, and .* has no model of this name"):
        load("no/model")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(StillmotionError, match=r"not in the cache \(.*\), and .* from http://127\.0\.0\.1:9 failed"):
        load("some/model")


def test_no_code_is_fetched_and_none_is_run(hub, tmp_path):
    folder = save_model("dinov2", tmp_path / "there" / "someone" / "sly")
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | {"auto_map": {"AutoModel": "modeling.Mine"}}))
    (folder / "modeling.py").write_text("open('sprung', 'w')")
    with pytest.raises(StillmotionError, match="asks for custom code"):
        load("someone/sly")
    assert requests_for(hub, "someone/sly")
    assert not requests_for(hub, ".py")
    assert not (tmp_path / "sprung").exists()


def test_a_model_without_weights_is_an_error(hub, tmp_path):
    (tmp_path / "there" / "someone" / "small" / "model.safetensors").unlink()
    with pytest.raises(StillmotionError, match=r"someone/small has no config\.json, or no model\.safetensors"):
        load("someone/small")
