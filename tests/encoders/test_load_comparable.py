"""A frozen image model and its transfer runs use the same pooling where they are compared."""

import shutil
from dataclasses import replace

import pytest
import torch
from support.small_pretrain import single_thread
from support.tiny_transformers import save_model

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.encoders import load, load_comparable
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.geometry.config import GeometryConfig
from stillmotion.evaluation.geometry.evaluate import evaluate_geometry
from stillmotion.methods.image_to_video import ProjectionConfig
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES
from stillmotion.training.transfer.task import transfer


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return save_model("dinov2", tmp_path_factory.mktemp("models") / "dinov2")


@pytest.fixture(scope="module")
def transfer_run(dinov2, tmp_path_factory):
    """Return a transfer run whose projection is still the identity."""
    config = TRANSFER_RECIPES.get("dinov2-b16", debug=True)
    synthetic = replace(config.data.synthetic, num_videos=4, image_size=28, num_frames=8)
    config = replace(
        config,
        image_model=ImageModelConfig(path=str(dinov2)),
        data=replace(config.data, image_size=28, synthetic=synthetic),
        method=replace(config.method, token_pool_size=1, projection=ProjectionConfig(residual=True)),
        optim=replace(config.optim, batch_size=4, epochs=2, warmup_epochs=0, lr=1e-12),
        train=replace(config.train, save_epochs=(1,)),
    )
    with single_thread():
        return transfer(config, tmp_path_factory.mktemp("models") / "transfer")


def clips():
    return torch.rand(2, 3, 2, 28, 28, generator=torch.Generator().manual_seed(0))


def test_a_frozen_model_that_is_compared_with_a_transfer_run_pools_its_patches(dinov2, transfer_run, caplog):
    caplog.set_level("INFO", "stillmotion")
    frozen, run = load_comparable([dinov2, transfer_run])
    assert frozen.origin.spec == f"{dinov2}@pool=mean"
    assert len(caplog.messages) == 1
    assert "Using the mean of patches" in caplog.messages[0]
    with torch.no_grad():
        torch.testing.assert_close(frozen(clips()).whole, run(clips()).whole, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(load(dinov2)(clips()).whole, run(clips()).whole, atol=1e-2)


def test_a_spec_that_sets_its_pooling_keeps_it_with_a_warning(dinov2, transfer_run, caplog):
    frozen, _ = load_comparable([f"{dinov2}@pool=cls,frames=2", transfer_run])
    assert frozen.backbone.token_pool == "cls"
    assert "add @pool=mean" in caplog.messages[0]


def test_without_a_transfer_run_every_model_keeps_its_pooling(dinov2, caplog):
    caplog.set_level("INFO", "stillmotion")
    assert load_comparable([dinov2, "debug:k400-simclr"])[0].backbone.token_pool == "cls"
    assert not caplog.messages


def test_a_transfer_run_pools_patches_and_says_that_it_has_no_class_token(transfer_run):
    assert load(f"{transfer_run}@pool=mean").origin.options == {"pool": "mean"}
    with pytest.raises(StillmotionError, match="has no class token"):
        load(f"{transfer_run}@pool=cls")


def test_kept_epochs_of_a_transfer_are_rows_of_geometry(transfer_run, dinov2, tmp_path):
    encoders = [load(f"{transfer_run}@epoch=1"), load(transfer_run)]
    config = GeometryConfig(max_videos=3, n_resamples=10, image_size=28)
    report = evaluate_geometry(encoders, VideoDataConfig("synthetic"), config)
    assert set(report.rows) == {"frozen", f"{transfer_run.name}@epoch=1", transfer_run.name}
    with pytest.raises(StillmotionError, match="no saved weights of epoch 2"):
        load(f"{transfer_run}@epoch=2")
    copy = shutil.copytree(transfer_run, tmp_path / "copy")
    assert load(f"{copy}@epoch=1").run_dir == copy / "checkpoints" / "epoch-0001"
