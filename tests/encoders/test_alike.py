"""A frozen image model and what was transferred from it are pooled alike where they are compared."""

import shutil
from dataclasses import replace

import pytest
import torch
from small_run import one_core
from tiny_models import save_model

from stillmotion.data.videos import Videos
from stillmotion.encoders import load, load_alike
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.geometry import geometry
from stillmotion.evaluate.options import Geometry
from stillmotion.methods.transfer import ProjectionConfig
from stillmotion.nn.images import ImagesConfig
from stillmotion.recipes.transfer import TRANSFER
from stillmotion.tasks.transfer import transfer


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return save_model("dinov2", tmp_path_factory.mktemp("models") / "dinov2")


@pytest.fixture(scope="module")
def transferred(dinov2, tmp_path_factory):
    """A run whose projection is kept as it began, which is the identity."""
    config = TRANSFER.named("debug-dinov2")
    synthetic = replace(config.data.synthetic, videos=4, size=28, length=8)
    config = replace(
        config,
        images=ImagesConfig(path=str(dinov2)),
        data=replace(config.data, size=28, synthetic=synthetic),
        method=replace(config.method, pool=1, projection=ProjectionConfig(residual=True)),
        optim=replace(config.optim, batch=4, epochs=2, warmup_epochs=0, lr=1e-12),
        train=replace(config.train, keep=(1,)),
    )
    with one_core():
        return transfer(config, tmp_path_factory.mktemp("models") / "transfer")


def clips():
    return torch.rand(2, 3, 2, 28, 28, generator=torch.Generator().manual_seed(0))


def test_beside_a_transfer_run_a_frozen_model_pools_its_patches(dinov2, transferred):
    told = []
    frozen, run = load_alike([dinov2, transferred], say=told.append)
    assert frozen.origin.text == f"{dinov2}@pool=patches"
    assert len(told) == 1
    assert "pools patches, as the transfer run beside it does" in told[0]
    with torch.no_grad():
        torch.testing.assert_close(frozen(clips()).whole, run(clips()).whole, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(load(dinov2)(clips()).whole, run(clips()).whole, atol=1e-2)


def test_a_text_that_says_its_pooling_keeps_it_and_is_told(dinov2, transferred):
    told = []
    frozen, _ = load_alike([f"{dinov2}@pool=class,frames=2", transferred], say=told.append)
    assert frozen.backbone.pool == "class"
    assert "pool=patches would be alike" in told[0]


def test_without_a_transfer_run_every_model_has_its_own_way(dinov2):
    told = []
    assert load_alike([dinov2, "debug-simclr"], say=told.append)[0].backbone.pool == "class"
    assert not told


def test_a_transfer_run_pools_patches_and_says_that_it_has_no_class_token(transferred):
    assert load(f"{transferred}@pool=patches").origin.options == {"pool": "patches"}
    with pytest.raises(StillmotionError, match="projects patches and no class token"):
        load(f"{transferred}@pool=class")


def test_kept_epochs_of_a_transfer_are_rows_of_geometry(transferred, dinov2, tmp_path):
    texts = [f"{transferred}@epoch=1", str(transferred)]
    found = geometry(texts, Videos("synthetic"), Geometry(videos=3, resamples=10, size=28), device="cpu")
    assert set(found["rows"]) == {"frozen", *texts}
    with pytest.raises(StillmotionError, match="keeps no weights of epoch 2"):
        geometry([f"{transferred}@epoch=2"], Videos("synthetic"), Geometry(videos=3, size=28), device="cpu")
    copy = shutil.copytree(transferred, tmp_path / "copy")
    assert load(f"{copy}@epoch=1").folder == copy / "checkpoints" / "epoch-0001"
