"""Transfer runs of a second: what is written, resuming, kept tokens, and what stops a run."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from support.diverging_run import make_lr_infinite_after
from support.small_pretrain import single_thread, stop_at_step

from stillmotion.encoders import load
from stillmotion.encoders.patch_tokens import load_patch_tokens
from stillmotion.errors import NonFiniteError, StillmotionError
from stillmotion.methods.image_to_video import PositionAugmentConfig
from stillmotion.training.run_dir import verb_of_run
from stillmotion.training.run_log import load_metrics
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import TransferTrainer, transfer


def small(family="dinov2", *, positions=None, pairs=0, epochs=3, **optim):
    config = TRANSFER_RECIPES.get("dinov3-s16" if family == "dinov3" else f"{family}-b16", debug=True)
    synthetic = replace(config.data.synthetic, num_videos=6, image_size=24, num_frames=12)
    return replace(
        config,
        data=replace(config.data, image_size=24, pairs_per_video=pairs, synthetic=synthetic),
        method=replace(config.method, positions=positions or config.method.positions),
        optim=replace(config.optim, batch_size=2, epochs=epochs, **optim),
        train=replace(config.train, checkpoint_every_steps=1),
    )


def trained(config, folder, **options):
    with single_thread():
        return transfer(config, folder, **options)


def weights(folder):
    return load_file(folder / "checkpoint.safetensors")


def assert_same(a, b):
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert load_metrics(a) == load_metrics(b)


def test_only_the_projection_is_trained_and_saved(tmp_path):
    run = trained(small(), tmp_path / "run")
    assert set(weights(run)) == {
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


@pytest.mark.parametrize("stop", [1, 4])
@pytest.mark.parametrize("kept", [False, True])
def test_a_stopped_run_resumes_bit_for_bit(tmp_path, stop, kept):
    config = small(pairs=2, positions=PositionAugmentConfig(fixed_windows=2)) if kept else small()
    whole = trained(config, tmp_path / "whole")

    with stop_at_step(stop, 9):
        trained(config, tmp_path / "stopped")
    assert_same(whole, trained(config, tmp_path / "stopped"))


def test_runs_on_the_same_pairs_share_kept_tokens(tmp_path, monkeypatch):
    config = small(pairs=1, positions=PositionAugmentConfig(fixed_windows=1))
    first = trained(config, tmp_path / "first", cache_dir=tmp_path / "tokens")

    def never(self, frames, positions=None):
        raise AssertionError("tokens were computed again")

    monkeypatch.setattr("stillmotion.models.pretrained.frozen_image_model.FrozenImageModel.patch_tokens", never)
    other = replace(config, method=replace(config.method, separability_weight=0.1))
    trained(replace(config, train=replace(config.train, seed=1)), tmp_path / "seed", cache_dir=tmp_path / "tokens")
    trained(other, tmp_path / "weight", cache_dir=tmp_path / "tokens")
    assert_same(first, trained(config, tmp_path / "again", cache_dir=tmp_path / "tokens"))
    assert not torch.equal(
        weights(first)["projection.layers.0.weight"], weights(tmp_path / "seed")["projection.layers.0.weight"]
    )


def test_kept_tokens_are_those_that_are_computed_anew(tmp_path):
    config = small(pairs=2, positions=PositionAugmentConfig(window="center"), epochs=2)
    kept = trained(config, tmp_path / "kept")
    anew = trained(replace(config, data=replace(config.data, cache_tokens=False)), tmp_path / "anew")
    assert (kept / "tokens").is_dir()
    a, b = load_metrics(kept)["loss/separability"], load_metrics(anew)["loss/separability"]
    for (_, left), (_, right) in zip(a, b, strict=True):
        assert left == pytest.approx(right, rel=1e-3)  # half precision


@pytest.mark.parametrize("crop", ["none", "center", "edge", "multiple"])
@pytest.mark.parametrize("family", ["dinov2", "dinov3"])
def test_every_crop_trains_on_tables_and_on_rotary_coordinates(tmp_path, crop, family):
    run = trained(
        small(family, positions=PositionAugmentConfig(window=crop, num_windows=2), epochs=1), tmp_path / "run"
    )
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values())


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_weights(tmp_path, monkeypatch):
    make_lr_infinite_after(monkeypatch, num_steps=1)
    with pytest.raises(NonFiniteError, match=r"step 2: .*not finite.*Last good checkpoint.*\(step 1\)"):
        trained(small(), tmp_path / "run")


def test_another_run_in_the_folder_is_not_overwritten(tmp_path):
    trained(small(epochs=1), tmp_path / "run")
    other = replace(small(epochs=1), method=replace(small().method, separability_weight=9.0))
    with pytest.raises(StillmotionError, match=r"contains a different run .*method\.separability_weight"):
        trained(other, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, data=replace(c.data, image_size=25)), "a multiple of 8"),
        (lambda c: replace(c, optim=replace(c.optim, batch_size=7)), "Batch size is 7 but there are only 6 videos"),
        (lambda c: replace(c, image_model=replace(c.image_model, path="nowhere")), "no config.json"),
    ],
)
def test_errors_say_what_to_do(tmp_path, change, message):
    with pytest.raises(StillmotionError, match=message):
        transfer(change(small()), tmp_path / "run")


def test_a_run_is_an_encoder_and_gives_projected_tokens(tmp_path):
    run = trained(small(epochs=1), tmp_path / "run")
    found = load_patch_tokens(run)
    encoder = load(run)
    clip = torch.rand(1, 3, 3, 24, 24)
    mean, std = (torch.tensor(v)[:, None, None, None] for v in encoder.input_config.normalization)
    assert encoder.input_config.normalization == found.image_model.normalization
    assert encoder.input_config.image_size == 24
    seen = (clip - mean) / std
    with torch.no_grad():
        tokens = found.projection(found.image_model.patch_tokens(seen[0].transpose(0, 1)))
        torch.testing.assert_close(encoder(seen).frames[0], tokens.mean(1), atol=1e-4, rtol=1e-3)


def test_fixed_windows_belong_to_a_pair_and_new_ones_to_an_epoch(tmp_path):
    for fixed, same in ((2, True), (0, False)):
        config = small(pairs=2, positions=PositionAugmentConfig(fixed_windows=fixed))
        with single_thread():
            run = TransferTrainer(config, tmp_path / str(fixed), torch.device("cpu"), None)
        windows = [run._position_windows(1, epoch) for epoch in (0, 1, 2)]
        assert len(windows[0]) == max(1, fixed)
        assert torch.equal(windows[0], windows[2]) == same
        assert not torch.equal(windows[0], windows[1])
