"""Pre-training on cached tokens: training, resuming, several processes, and the run as an encoder."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders
from support.process import two_ranks
from support.run_comparison import load_weights
from support.small_pretrain import small_config, train
from support.tiny_transformers import save_model

import stillmotion
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.run_dir import load_config

TOKENS = {"data.frame_stride": 0, "data.cached_frames": 7, "data.image_size": 16}


def small_tokens(name="debug:tokens-bod", changes=None):
    return small_config(name, TOKENS | (changes or {}))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = small_tokens(changes={"method.static_dynamic.num_delays": 2})
    return train(config, tmp_path_factory.mktemp("run") / "whole")


@pytest.mark.parametrize("name", [f"debug:tokens-{name}" for name in ("simclr", "bod", "vididi", "motion")])
def test_the_recipes_train(name, tmp_path):
    weights = load_weights(train(small_tokens(name), tmp_path))
    assert all(torch.isfinite(value).all() for value in weights.values() if value.is_floating_point())


def test_the_frozen_model_is_no_part_of_the_run(run):
    names = load_weights(run)
    assert names
    assert not [name for name in names if "images" in name or "embeddings" in name]


def test_runs_share_cached_tokens(run, tmp_path):
    for name in ("0", "1"):
        pretrain(small_tokens(), tmp_path / name, cache_dir=tmp_path / "tokens")
    assert len(list((tmp_path / "tokens").glob("*.f16"))) == 1
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
    single_files, parallel_files = (
        sorted((folder / "tokens").iterdir()) for folder in (train(config, tmp_path / "one"), tmp_path / "two")
    )
    assert [file.name for file in single_files] == [file.name for file in parallel_files]
    assert all(
        left.read_bytes() == right.read_bytes() for left, right in zip(single_files, parallel_files, strict=True)
    )


def test_a_run_is_an_encoder_of_pixels(run, tmp_path):
    encoder = stillmotion.load(run)
    config = encoder.input_config
    assert (config.num_frames, config.stride, config.image_size, config.whole_frame) == (4, 0, 16, True)
    assert config.normalization == encoder.backbone.image_model.normalization
    folder = write_class_folders(tmp_path / "set", videos_per_class=3)
    videos = sorted(folder.rglob("*.mp4"))
    vectors = encoder.embed(videos, num_clips=2)
    assert vectors.whole.shape == (len(videos), 8 * 2**2)  # four cells
    assert vectors.dynamic.shape == (len(videos), 2 * 8 * 2**2)  # windows of two frames
    assert np.isfinite(vectors.dynamic).all()
    (retrieval,) = evaluate_retrieval([encoder], TrainTestConfig(str(folder)), RetrievalConfig(num_clips=1)).values()
    assert set(retrieval.scores) == {"whole", "static", "dynamic", "concat", "motion"}


def test_a_still_clip_has_no_dynamic_half(run):
    encoder = stillmotion.load(run)
    embedding = encoder(torch.randn(2, 3, 1, 16, 16).expand(-1, -1, 4, -1, -1))
    assert (embedding.dynamic.norm(dim=1) <= 1e-4 * embedding.static.norm(dim=1)).all()


def test_the_image_model_is_noted_so_that_it_is_found_from_any_folder(tmp_path, monkeypatch):
    save_model("dinov2", tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    changes = {"data.image_size": 28, "method.model.image_model.path": "model", "method.model.image_model.layer": 1}
    folder = train(small_tokens(changes=changes), tmp_path / "run")
    output = json.loads((folder / "config.json").read_text())
    assert output["method"]["model"]["image_model"]["path"] == str(tmp_path / "model")
    monkeypatch.chdir("/")
    assert stillmotion.load(folder).backbone.image_model.patch_size == 14
