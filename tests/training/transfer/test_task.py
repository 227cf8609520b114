"""Short transfer runs: log files, resuming, cached tokens, and errors."""

from dataclasses import replace

import pytest
import torch
from support.run_comparison import assert_same_run, load_weights
from support.small_pretrain import single_thread
from support.small_transfer import small_config, transfer_once

from stillmotion.encoders import load
from stillmotion.encoders.patch_tokens import load_patch_tokens
from stillmotion.functional.position_embeddings import resize_grid
from stillmotion.methods.image_to_video import PositionAugmentConfig
from stillmotion.training.run_dir import verb_of_run
from stillmotion.training.run_log import load_metrics
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import TransferTrainer


def test_only_the_projection_is_trained_and_saved(tmp_path):
    run = transfer_once(small_config(), tmp_path / "run")
    assert set(load_weights(run)) == {
        "projection.layers.0.weight",
        "projection.layers.0.bias",
        "projection.layers.2.weight",
        "projection.layers.2.bias",
    }
    curves = load_metrics(run)
    assert {"loss/cycle", "loss/separability", "cycle_accuracy", "grad_norm", "lr", "epoch"} == set(curves)
    assert len(curves["lr"]) == 9
    assert not (run / "tokens").exists()
    assert verb_of_run(run) == "transfer"


def test_runs_on_the_same_pairs_share_kept_tokens(tmp_path, monkeypatch):
    config = small_config(pairs=1, positions=PositionAugmentConfig(fixed_windows=1))
    first = transfer_once(config, tmp_path / "first", cache_dir=tmp_path / "tokens")

    def fail(self, frames, positions=None):
        raise AssertionError("tokens were computed again")

    monkeypatch.setattr("stillmotion.models.pretrained.frozen_image_model.FrozenImageModel.patch_tokens", fail)
    other = replace(config, method=replace(config.method, separability_weight=0.1))
    transfer_once(
        replace(config, train=replace(config.train, seed=1)), tmp_path / "seed", cache_dir=tmp_path / "tokens"
    )
    transfer_once(other, tmp_path / "weight", cache_dir=tmp_path / "tokens")
    assert_same_run(first, transfer_once(config, tmp_path / "again", cache_dir=tmp_path / "tokens"))
    assert not torch.equal(
        load_weights(first)["projection.layers.0.weight"], load_weights(tmp_path / "seed")["projection.layers.0.weight"]
    )


def test_cached_tokens_equal_recomputed_ones(tmp_path):
    config = small_config(pairs=2, positions=PositionAugmentConfig(window="center"), epochs=2)
    cached = transfer_once(config, tmp_path / "cached")
    anew = transfer_once(replace(config, data=replace(config.data, cache_tokens=False)), tmp_path / "anew")
    assert (cached / "tokens").is_dir()
    a, b = load_metrics(cached)["loss/separability"], load_metrics(anew)["loss/separability"]
    for (_, cached_row), (_, computed) in zip(a, b, strict=True):
        assert cached_row == pytest.approx(computed, rel=1e-3)  # half precision


@pytest.mark.parametrize("crop", ["none", "center", "edge", "multiple"])
@pytest.mark.parametrize("family", ["dinov2", "dinov3"])
def test_every_crop_trains_on_tables_and_on_rotary_coordinates(tmp_path, crop, family):
    run = transfer_once(
        small_config(family, positions=PositionAugmentConfig(window=crop, num_windows=2), epochs=1), tmp_path / "run"
    )
    assert all(torch.isfinite(tensor).all() for tensor in load_weights(run).values())


def test_a_run_is_an_encoder_and_gives_projected_tokens(tmp_path):
    run = transfer_once(small_config(epochs=1), tmp_path / "run")
    model = load_patch_tokens(run)
    encoder = load(run)
    clip = torch.rand(1, 3, 3, 24, 24)
    mean, std = (torch.tensor(v)[:, None, None, None] for v in encoder.input_config.normalization)
    assert encoder.input_config.normalization == model.image_model.normalization
    assert encoder.input_config.image_size == 24
    pixels = (clip - mean) / std
    with torch.no_grad():
        tokens = model.projection(model.image_model.patch_tokens(pixels[0].transpose(0, 1)))
        torch.testing.assert_close(encoder(pixels).frames[0], tokens.mean(1), atol=1e-4, rtol=1e-3)


def test_fixed_windows_belong_to_a_pair_and_new_ones_to_an_epoch(tmp_path):
    for fixed, same in ((2, True), (0, False)):
        config = small_config(pairs=2, positions=PositionAugmentConfig(fixed_windows=fixed))
        with single_thread():
            run = TransferTrainer(config, tmp_path / str(fixed), torch.device("cpu"))
        windows = [run._position_windows(1, epoch) for epoch in (0, 1, 2)]
        assert len(windows[0]) == max(1, fixed)
        assert torch.equal(windows[0], windows[2]) == same
        assert not torch.equal(windows[0], windows[1])


def test_the_authors_windows_are_those_of_a_batch_from_a_table_of_the_frames_size(tmp_path):
    trainers = {}
    for convention in ("library", "authors"):
        config = small_config()
        config = replace(config, method=replace(config.method, convention=convention))
        with single_thread():
            trainers[convention] = TransferTrainer(config, tmp_path / convention, torch.device("cpu"))
    grids = {name: run.position_grid for name, run in trainers.items()}
    images = trainers["authors"].image_model
    assert images.position_grid(4, 4).shape != images.position_grid(*trainers["authors"].token_grid).shape
    twice = resize_grid(images.position_grid(*trainers["authors"].token_grid), *grids["authors"].shape[:2])
    torch.testing.assert_close(grids["authors"], twice)
    assert (grids["library"] - grids["authors"]).abs().max() > 1e-3
    for name, run in trainers.items():
        calls = []
        original = run.image_model.patch_tokens
        run.image_model.patch_tokens = lambda frames, at=None, calls=calls, original=original: (
            calls.append(at),
            original(frames, at),
        )[1]
        run._pair_tokens({"index": torch.tensor([1, 4]), "clips": torch.rand(2, 1, 3, 2, 24, 24)}, 0)
        assert torch.equal(calls[1][0], calls[1][1]) == (name == "authors")


def test_half_precision_trains_a_projection_close_to_that_of_full_precision(tmp_path):
    weights = {}
    for precision in ("fp32", "bf16"):
        config = small_config(epochs=2)
        config = replace(config, train=replace(config.train, precision=precision))
        weights[precision] = load_weights(transfer_once(config, tmp_path / precision))
    for name, full in weights["fp32"].items():
        bf16_weight = weights["bf16"][name]
        assert bf16_weight.dtype == torch.float32
        assert not torch.equal(bf16_weight, full)
        torch.testing.assert_close(bf16_weight, full, atol=0.02, rtol=0.05)


def test_paper_rows_have_the_values_of_the_authors_code():
    for name in ("mae-b16", "clip-b16", "ijepa-b16", "dinov2-s14"):
        config = TRANSFER_RECIPES.get(name)
        assert config.data.squash
        assert config.data.crop_scale == (0.5, 1.0)
        assert (config.method.convention, config.train.precision) == ("authors", "fp16")
        assert (config.image_model.normalization == "imagenet") == (name == "clip-b16")
    assert TRANSFER_RECIPES.get("ijepa-b16").image_model.family == "ijepa-encoder"
