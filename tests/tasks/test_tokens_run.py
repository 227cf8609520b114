"""Pre-training on kept tokens: a run trains, goes on, is shared by processes, and is an encoder."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from commands import two_ranks
from debug_videos import write_classes
from safetensors.torch import load_file
from small_run import small, stopping, trained
from tiny_models import save_model

import stillmotion
from stillmotion.config import load_config
from stillmotion.data.halves import Halves
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.options import Retrieval
from stillmotion.evaluate.retrieve import retrieve
from stillmotion.tasks.pretrain import pretrain

TOKENS = {"data.stride": 0, "data.kept": 7, "data.size": 16}


def small_tokens(name="debug-tokens-ours", changes=None):
    return small(name, TOKENS | (changes or {}))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(small_tokens(), tmp_path_factory.mktemp("run") / "whole")


@pytest.mark.parametrize("name", ["debug-tokens-simclr", "debug-tokens-bod", "debug-tokens-vididi"])
def test_the_other_recipes_train(name, tmp_path):
    weights = load_file(trained(small_tokens(name), tmp_path) / "checkpoint.safetensors")
    assert all(torch.isfinite(value).all() for value in weights.values() if value.is_floating_point())


def test_the_frozen_model_is_no_part_of_the_run(run):
    names = load_file(run / "checkpoint.safetensors")
    assert names
    assert not [name for name in names if "images" in name or "embeddings" in name]


def test_a_stopped_run_goes_on_to_the_same_weights(run, tmp_path):
    config = small_tokens()
    with stopping(1, 2):
        trained(config, tmp_path)
    trained(config, tmp_path)
    left, right = (load_file(folder / "checkpoint.safetensors") for folder in (run, tmp_path))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_runs_share_kept_tokens(run, tmp_path):
    config = small_tokens()
    for seed in (0, 1):
        pretrain(replace(config, train=replace(config.train, seed=0)), tmp_path / str(seed), cache=tmp_path / "kept")
    assert len(list((tmp_path / "kept").glob("*.f16"))) == 1
    assert not (tmp_path / "0" / "tokens").exists()
    assert len(list((run / "tokens").glob("*.f16"))) == 1


def test_two_processes_keep_the_tokens_of_one(tmp_path):
    options = "--data.synthetic.videos 16 --data.size 16 --data.frames 4 --data.kept 7 --optim.batch 8 --optim.epochs 1"
    words = ["pretrain", "--recipe", "debug-tokens-simclr", *options.split(), "--out"]
    for command in two_ranks(*words, str(tmp_path / "two")):
        command.succeed()
    config = replace(load_config(tmp_path / "two"), recipe="debug-tokens-simclr")
    one, two = (
        sorted((folder / "tokens").iterdir()) for folder in (trained(config, tmp_path / "one"), tmp_path / "two")
    )
    assert [file.name for file in one] == [file.name for file in two]
    assert all(left.read_bytes() == right.read_bytes() for left, right in zip(one, two, strict=True))


def test_a_run_is_an_encoder_of_pixels(run, tmp_path):
    encoder = stillmotion.load(run)
    intake = encoder.intake
    assert (intake.frames, intake.stride, intake.size, intake.entire) == (4, 0, 16, True)
    assert intake.normalisation == encoder.backbone.images.normalisation
    folder = write_classes(tmp_path / "set", videos=3)
    videos = sorted(folder.rglob("*.mp4"))
    vectors = encoder.embed(videos, clips=2)
    assert vectors.whole.shape == (len(videos), 8 * 2**2)  # four cells
    assert vectors.dynamic.shape == (len(videos), 2 * 8 * 2**2)  # of windows of two frames
    assert np.isfinite(vectors.dynamic).all()
    found = retrieve([encoder], Halves(str(folder)), Retrieval(clips=1))
    assert set(next(iter(found.values()))["scores"]) == {"whole", "static", "dynamic", "both", "motion"}


def test_a_still_clip_has_no_dynamic_half(run):
    encoder = stillmotion.load(run)
    found = encoder(torch.randn(2, 3, 1, 16, 16).expand(-1, -1, 4, -1, -1))
    assert (found.dynamic.norm(dim=1) <= 1e-4 * found.static.norm(dim=1)).all()


def test_the_image_model_is_noted_so_that_it_is_found_from_any_folder(tmp_path, monkeypatch):
    save_model("dinov2", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    changes = {"data.size": 28, "method.model.images.path": "model", "method.model.images.layer": 1}
    folder = trained(small_tokens(changes=changes), tmp_path / "run")
    said = json.loads((folder / "config.json").read_text())
    assert said["method"]["model"]["images"]["path"] == str(tmp_path / "model")
    monkeypatch.chdir("/")
    assert stillmotion.load(folder).backbone.images.patch == 14


def test_what_a_run_on_tokens_lacks_is_named(tmp_path):
    with pytest.raises(StillmotionError, match=r"no image model given; add --method.model.images.path"):
        pretrain(replace(small_tokens(), recipe="tokens-ours"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(StillmotionError, match=r"data.kept is 5 and data.stride 0; .* 6 frames .*--data.kept 8"):
        small_tokens(changes={"data.kept": 5})
    with pytest.raises(StillmotionError, match="tokens have no colours"):
        small_tokens(changes={"method.views.colour": "turned"})
    with pytest.raises(StillmotionError, match=r"data.kept is 7, but small_resnet3d is shown no tokens"):
        small("debug-simclr", {"data.kept": 7})
