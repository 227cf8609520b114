"""Folders of runs as they were written before verbs were noted and before runs of every verb were encoders."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_finetuning import small, tuned

from stillmotion.config import Config, read_config, to_json
from stillmotion.encoders import load, read_text
from stillmotion.errors import StillmotionError
from stillmotion.recipes import recipe

_OLD_NAMES = {"layout": "kind"}


@pytest.fixture
def copied(texts, tmp_path):
    """A run folder of a kind that the test may change."""
    return lambda kind: Path(shutil.copytree(texts[kind], tmp_path / kind))


def rewritten(file: Path, change) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


def without_verb(config: dict) -> dict:
    data = {_OLD_NAMES.get(name, name): value for name, value in config["data"].items()}
    if config.pop("verb") == "segment":
        data["split"] = data.pop("fold")
    return config | {"data": data}


def without_rate(tree):
    """What was written before strides were counted at a rate and drawn values had names."""
    if not isinstance(tree, dict):
        return tree
    return {name: without_rate(value) for name, value in tree.items() if name not in ("fps", "named")}


def embedded(run: Path, video: Path) -> np.ndarray:
    return np.concatenate(load(run).embed([video], clips=2), 1)


@pytest.fixture
def video(folder):
    return folder / "light" / "1.mp4"


@pytest.mark.parametrize("kind", ["pretrain", "transfer", "finetune", "detect", "segment"])
def test_a_folder_that_does_not_say_its_verb_is_told_by_its_fields(texts, copied, video, kind):
    run = copied(kind)
    assert json.loads((run / "config.json").read_text())["verb"] == kind
    rewritten(run / "config.json", without_verb)
    assert read_text(run).kind == kind
    np.testing.assert_array_equal(embedded(run, video), embedded(texts[kind], video))


def without_border(model: dict) -> dict:
    assert model.pop("border") == "zeros"
    assert model.pop("keep_time") is True
    return model


def test_a_folder_from_before_borders_could_be_chosen_has_zeros(texts, copied, video, tmp_path):
    def older(config):
        without_border(config["method"]["model"])
        return config

    run = copied("pretrain")
    rewritten(run / "config.json", older)
    assert read_config(run, Config).method.model.border == "zeros"
    np.testing.assert_array_equal(embedded(run, video), embedded(texts["pretrain"], video))
    began = tuned(replace(small(epochs=1), encoder=str(run)), tmp_path / "run")
    wanted = embedded(began, video)
    rewritten(began / "encoder.json", lambda network: network | {"config": older(network["config"])})
    np.testing.assert_array_equal(embedded(began, video), wanted)


def old_network(network: dict, *, kind: str) -> dict:
    """As a fine-tuning run once wrote it: the clips stood in the configuration of the encoder that it began with."""
    intake = network.pop("intake")
    config = network["config"]
    config["data"] |= {name: intake[name] for name in ("frames", "stride", "size")}
    return {"kind": kind, "encoder": network["encoder"], "config": without_verb(config)}


@pytest.mark.parametrize(("began", "once"), [("recipe", "recipe"), ("pretrain", "run")])
def test_a_network_of_ours_is_built_by_its_configuration(texts, video, tmp_path, began, once):
    run = tuned(replace(small(epochs=1), encoder=texts[began]), tmp_path / "run")
    wanted = embedded(run, video)
    rewritten(run / "encoder.json", lambda network: old_network(network, kind=once))
    rewritten(run / "config.json", without_verb)
    np.testing.assert_array_equal(embedded(run, video), wanted)
    assert load(run).intake.frames == 4


@pytest.mark.parametrize("began", ["transformers", "transfer", "i3d"])
def test_a_network_from_elsewhere_once_stood_within_another(texts, video, tmp_path, began):
    config = replace(small(epochs=1, batch=16, data={"frames": 0, "size": 0}), encoder=texts[began])
    run = tuned(config, tmp_path / "run")
    wanted = embedded(run, video)
    shown = load(run).intake

    def old(network):
        told = to_json(recipe("debug-simclr"))
        return old_network(network | {"config": told}, kind=began)

    rewritten(run / "encoder.json", old)
    weights = load_file(run / "checkpoint.safetensors")
    prefix, within = "backbone.", "backbone.backbone."
    older = {within + n.removeprefix(prefix) if n.startswith(prefix) else n: w for n, w in weights.items()}
    ones = torch.ones(3, 1, 1, 1)
    save_file(older | {"backbone.scale": ones, "backbone.shift": 0 * ones}, run / "checkpoint.safetensors")
    assert load(run).intake == shown
    np.testing.assert_array_equal(embedded(run, video), wanted)


@pytest.mark.parametrize("kind", ["pretrain", "finetune", "detect"])
def test_frames_were_once_counted_whatever_their_rate(texts, copied, video, kind):
    run = copied(kind)
    rewritten(run / "config.json", without_rate)
    if (run / "encoder.json").exists():
        rewritten(run / "encoder.json", without_rate)
    assert load(run).intake.fps == 0
    np.testing.assert_array_equal(embedded(run, video), embedded(texts[kind], video))


def test_a_detection_run_once_kept_no_network(texts, copied, video):
    run = copied("detect")
    (run / "encoder.json").unlink()
    rewritten(run / "config.json", without_verb)
    np.testing.assert_array_equal(embedded(run, video), embedded(texts["detect"], video))


@pytest.mark.parametrize("kind", ["finetune", "detect"])
def test_a_trained_run_gives_the_weights_that_it_ended_with(texts, kind):
    saved = load_file(Path(texts[kind]) / "checkpoint.safetensors")
    for name, value in load(texts[kind]).backbone.state_dict().items():
        assert torch.equal(value, saved[f"backbone.{name}"]), name


def test_a_segment_run_gives_the_encoder_that_its_head_was_trained_on(texts, video, copied):
    np.testing.assert_array_equal(embedded(texts["segment"], video), embedded(texts["pretrain"], video))
    run = copied("segment")
    rewritten(run / "config.json", lambda config: config | {"untrained": True})
    wanted = load(texts["pretrain"]).untrained().embed([video], clips=2)
    np.testing.assert_array_equal(embedded(run, video), np.concatenate(wanted, 1))
    rewritten(run / "config.json", lambda config: config | {"encoder": "features", "untrained": False})
    with pytest.raises(StillmotionError, match="features that lie with its data; it has no encoder"):
        load(run)


@pytest.mark.parametrize("kind", ["transformers", "dino"])
def test_a_layer_of_a_tuned_transformer_is_a_block(texts, video, tmp_path, kind):
    config = replace(small(epochs=1, batch=16, data={"frames": 3, "size": 0}), encoder=f"{texts[kind]}@pool=patches")
    run = tuned(config, tmp_path / "run")
    encoder = load(f"{run}@layer=1")
    assert (encoder.backbone.layer, encoder.backbone.pool, encoder.layer) == (1, "patches", None)
    assert not np.allclose(encoder.embed([video]).whole, load(run).embed([video]).whole, rtol=1e-3)
    with pytest.raises(StillmotionError, match="has blocks 1 to 2"):
        load(f"{run}@layer=5")


def test_a_run_that_began_with_a_run_is_built_without_it(texts, copied, video, tmp_path):
    began = copied("pretrain")
    run = tuned(replace(small(epochs=1), encoder=str(began)), tmp_path / "tuned")
    wanted = embedded(run, video)
    shutil.rmtree(began)
    np.testing.assert_array_equal(embedded(run, video), wanted)
