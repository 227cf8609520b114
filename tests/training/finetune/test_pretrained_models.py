"""Fine-tuning of external networks: trained and frozen weights, and the run as an encoder."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from support import small_transfer
from support.run_comparison import load_weights
from support.small_finetune import finetune_once, small_config
from support.tiny_transformers import save_model

from stillmotion.encoders import load
from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return save_model("dinov2", tmp_path_factory.mktemp("models") / "dinov2")


@pytest.fixture(scope="module")
def transfer_run(tmp_path_factory):
    config = small_transfer.small_config(epochs=1, warmup_epochs=0)
    return small_transfer.transfer_once(config, tmp_path_factory.mktemp("models") / "transfer")


def short_config(encoder, size, **head):
    return replace(
        small_config(epochs=1, batch_size=16, data={"num_frames": 2, "image_size": size}, head=head),
        encoder=str(encoder),
    )


def changed_names(run, start):
    saved = load_weights(run)
    before = load(start).backbone.state_dict()
    return {name for name, tensor in before.items() if not torch.equal(tensor, saved[f"backbone.{name}"])}


def test_a_transformers_model_is_trained_end_to_end_and_is_an_encoder(dinov2, tmp_path):
    run = finetune_once(short_config(f"{dinov2}@pool=mean,size=28", 0), tmp_path / "run")
    changed = changed_names(run, f"{dinov2}@pool=mean")
    assert any("patch_embeddings" in name for name in changed)
    assert any("layer.1" in name for name in changed)
    encoder = load(run)
    assert encoder.backbone.token_pool == "mean"
    assert (encoder.input_config.num_frames, encoder.input_config.image_size) == (2, 28)
    saved = load_weights(run)
    for name, tensor in encoder.backbone.state_dict().items():
        assert torch.equal(tensor, saved[f"backbone.{name}"]), name


TRAINED_PREFIXES = {
    "none": (),
    0: ("layernorm",),
    1: ("layernorm", "layer.1"),
    "all": ("layernorm", "layer.1", "layer.0", "patch"),
}


@pytest.mark.parametrize("trained_blocks", TRAINED_PREFIXES)
@pytest.mark.parametrize("kind", ["transformers", "transfer"])
def test_as_much_of_a_frozen_model_is_trained_as_of_a_transferred_one(
    dinov2, transfer_run, tmp_path, caplog, kind, trained_blocks
):
    encoder, size = {"transformers": (f"{dinov2}@pool=mean", 28), "transfer": (transfer_run, 24)}[kind]
    run = finetune_once(short_config(encoder, size, unfreeze=trained_blocks, pool="concat"), tmp_path / "run")
    changed = changed_names(run, encoder)
    projection = {name for name in changed if name.startswith("projection.")}
    assert bool(projection) == (kind == "transfer" and trained_blocks != "none")
    for prefix in TRAINED_PREFIXES["all"]:
        assert any(prefix in name for name in changed) == (prefix in TRAINED_PREFIXES[trained_blocks]), prefix
    assert ("weights are frozen" in caplog.text) == (trained_blocks != "all")
    assert load_weights(run)["head.weight"].shape[1] == 2 * 32
    for name, tensor in load(run).backbone.state_dict().items():
        assert torch.equal(tensor, load_weights(run)[f"backbone.{name}"]), name


def test_i3d_is_trained_at_any_clip_and_stays_an_encoder_without_its_file(tmp_path):
    network = create_backbone("i3d", per_frame_features=False)
    file = tmp_path / "i3d.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, file)
    start = f"i3d:{file}@frames=8,size=32"
    config = small_config(
        epochs=1, data={"videos_per_class": 1, "synthetic": replace(small_config().data.synthetic, num_videos=8)}
    )
    run = finetune_once(replace(config, encoder=start), tmp_path / "run")
    assert changed_names(run, start)
    file.unlink()
    encoder = load(run)
    assert (encoder.input_config.num_frames, encoder.input_config.image_size) == (8, 32)
    assert encoder.backbone(torch.zeros(1, 3, 8, 32, 32)).shape == (1, 1, 1024)


@pytest.mark.parametrize("kind", ["transformers", "transfer"])
def test_models_from_elsewhere_have_no_untrained_baseline(dinov2, transfer_run, tmp_path, kind):
    encoder, size = {"transformers": (dinov2, 28), "transfer": (transfer_run, 24)}[kind]
    with pytest.raises(StillmotionError, match="Random initialization is not supported"):
        finetune_once(replace(short_config(encoder, size), from_scratch=True), tmp_path / "run")
