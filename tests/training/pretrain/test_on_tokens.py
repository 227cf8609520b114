"""Pre-training on kept tokens: a run trains, goes on, is shared by processes, and is an encoder."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.class_videos import write_class_folders
from support.process import two_ranks
from support.small_pretrain import small_config, stop_at_step, train
from support.tiny_transformers import save_model

import stillmotion
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.run_dir import load_config
from stillmotion.training.tasks import get_recipe

TOKENS = {"data.frame_stride": 0, "data.cached_frames": 7, "data.image_size": 16}


def small_tokens(name="debug:tokens-routed", changes=None):
    return small_config(name, TOKENS | (changes or {}))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(small_tokens(), tmp_path_factory.mktemp("run") / "whole")


@pytest.mark.parametrize("name", ["debug:tokens-simclr", "debug:tokens-bod", "debug:tokens-vididi"])
def test_the_other_recipes_train(name, tmp_path):
    weights = load_file(train(small_tokens(name), tmp_path) / "checkpoint.safetensors")
    assert all(torch.isfinite(value).all() for value in weights.values() if value.is_floating_point())


def test_the_frozen_model_is_no_part_of_the_run(run):
    names = load_file(run / "checkpoint.safetensors")
    assert names
    assert not [name for name in names if "images" in name or "embeddings" in name]


def test_a_stopped_run_goes_on_to_the_same_weights(run, tmp_path):
    config = small_tokens()
    with stop_at_step(1, 2):
        train(config, tmp_path)
    train(config, tmp_path)
    left, right = (load_file(folder / "checkpoint.safetensors") for folder in (run, tmp_path))
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_runs_share_kept_tokens(run, tmp_path):
    config = small_tokens()
    for seed in (0, 1):
        pretrain(
            replace(config, train=replace(config.train, seed=0)), tmp_path / str(seed), cache_dir=tmp_path / "kept"
        )
    assert len(list((tmp_path / "kept").glob("*.f16"))) == 1
    assert not (tmp_path / "0" / "tokens").exists()
    assert len(list((run / "tokens").glob("*.f16"))) == 1


@pytest.mark.slow
def test_two_processes_keep_the_tokens_of_one(tmp_path):
    options = (
        "--data.synthetic.num-videos 16 --data.image-size 16 --data.num-frames 4 --data.cached-frames 7 "
        "--optim.batch-size 8 --optim.epochs 1"
    )
    words = ["pretrain", "--recipe", "tokens-simclr", "--debug", *options.split(), "--out"]
    for command in two_ranks(*words, str(tmp_path / "two")):
        command.expect_success()
    config = replace(load_config(tmp_path / "two", PretrainConfig), recipe="debug:tokens-simclr")
    one, two = (sorted((folder / "tokens").iterdir()) for folder in (train(config, tmp_path / "one"), tmp_path / "two"))
    assert [file.name for file in one] == [file.name for file in two]
    assert all(left.read_bytes() == right.read_bytes() for left, right in zip(one, two, strict=True))


def test_a_run_is_an_encoder_of_pixels(run, tmp_path):
    encoder = stillmotion.load(run)
    intake = encoder.input_config
    assert (intake.num_frames, intake.stride, intake.image_size, intake.whole_frame) == (4, 0, 16, True)
    assert intake.normalization == encoder.backbone.image_model.normalization
    folder = write_class_folders(tmp_path / "set", videos_per_class=3)
    videos = sorted(folder.rglob("*.mp4"))
    vectors = encoder.embed(videos, num_clips=2)
    assert vectors.whole.shape == (len(videos), 8 * 2**2)  # four cells
    assert vectors.dynamic.shape == (len(videos), 2 * 8 * 2**2)  # of windows of two frames
    assert np.isfinite(vectors.dynamic).all()
    found = evaluate_retrieval([encoder], TrainTestConfig(str(folder)), RetrievalConfig(num_clips=1))
    assert set(next(iter(found.values())).scores) == {"whole", "static", "dynamic", "concat", "motion"}


def test_a_still_clip_has_no_dynamic_half(run):
    encoder = stillmotion.load(run)
    found = encoder(torch.randn(2, 3, 1, 16, 16).expand(-1, -1, 4, -1, -1))
    assert (found.dynamic.norm(dim=1) <= 1e-4 * found.static.norm(dim=1)).all()


def test_the_image_model_is_noted_so_that_it_is_found_from_any_folder(tmp_path, monkeypatch):
    save_model("dinov2", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    changes = {"data.image_size": 28, "method.model.image_model.path": "model", "method.model.image_model.layer": 1}
    folder = train(small_tokens(changes=changes), tmp_path / "run")
    said = json.loads((folder / "config.json").read_text())
    assert said["method"]["model"]["image_model"]["path"] == str(tmp_path / "model")
    monkeypatch.chdir("/")
    assert stillmotion.load(folder).backbone.image_model.patch_size == 14


def test_what_a_run_on_tokens_lacks_is_named(tmp_path):
    with pytest.raises(StillmotionError, match=r"No image model given\. Add --method.model.image-model.path"):
        pretrain(get_recipe("tokens-routed"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(
        StillmotionError,
        match=r"data.cached_frames is 5 and data.frame_stride is 0, .* 6 frames .*--data.cached-frames 8",
    ):
        small_tokens(changes={"data.cached_frames": 5})
    with pytest.raises(StillmotionError, match="does not apply to tokens_cnn"):
        small_tokens(changes={"method.views.derivative_color": "random-hue"})
    with pytest.raises(StillmotionError, match=r"data.cached_frames is 7, but small_cnn3d does not use tokens"):
        small_config("k400-simclr", {"data.cached_frames": 7})
