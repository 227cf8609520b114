"""Released checkpoints of image-to-video transfer, with an image model and its projection in one file."""

from dataclasses import replace

import pytest
import torch
from support.reference_networks import IMAGE_SIZE, build_network
from support.run_comparison import load_weights
from support.small_transfer import small_config, transfer_once
from torch import nn

from stillmotion.encoders import load
from stillmotion.encoders.patch_tokens import load_patch_tokens
from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import IMAGENET_NORMALIZATION
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig, load_image_model


class AdapterBlock(nn.Module):
    """The projection with the parameter names of the authors' module."""

    def __init__(self, width: int, num_layers: int) -> None:
        super().__init__()
        self.names = ["adapter_linear"] if num_layers == 1 else [f"adapter_linear{i + 1}" for i in range(num_layers)]
        for name in self.names:
            setattr(self, name, nn.Linear(width, width))
        self.adapter_layer_norm1 = nn.LayerNorm(width)
        nn.init.normal_(self.adapter_layer_norm1.weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        for name in self.names[:-1]:
            tokens = getattr(self, name)(tokens).tanh()
        last = getattr(self, self.names[-1])(tokens)
        return self.adapter_layer_norm1(last.tanh() if len(self.names) == 1 else last)


def write_released(file, kind, num_layers=1):
    """Write a checkpoint as the authors' training saves it; returns the network and the projection."""
    network = build_network(kind)
    width = next(p for p in network.parameters() if p.ndim == 4).shape[0]
    torch.manual_seed(1)
    block = AdapterBlock(width, num_layers).eval()
    weights = network.state_dict() | {f"adapter.adapter.{name}": value for name, value in block.state_dict().items()}
    if kind == "clip":
        weights = {f"visual.{name}": value for name, value in weights.items()}
    elif kind == "ijepa":
        weights = {f"module.{name}": value for name, value in weights.items()}
    torch.save({"model": weights, "epoch": 4, "optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}}}, file)
    return network, block


@pytest.mark.parametrize("kind", ["mae", "ijepa", "clip", "blip", "mocov3", "dino", "ibot", "dinov2"])
@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_a_released_file_is_the_projected_model(kind, num_layers, tmp_path):
    file = tmp_path / "checkpoint.pth"
    network, block = write_released(file, kind, num_layers)
    encoder, model = load(f"{kind}:{file}"), load_patch_tokens(f"{kind}:{file}")
    frames = torch.randn(2, 3, IMAGE_SIZE, IMAGE_SIZE, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        if kind == "ijepa":  # its projection was trained before the last norm
            network.norm = nn.Identity()
        expected = block(network(frames))
        result = model.projection(model.image_model.patch_tokens(frames))
        torch.testing.assert_close(result, expected, atol=2e-4, rtol=1e-3)
        pooled = encoder.eval()(frames[:, :, None]).frames[:, 0]
        torch.testing.assert_close(pooled, expected.mean(1), atol=2e-4, rtol=1e-3)
    assert encoder.input_config.normalization == IMAGENET_NORMALIZATION
    with pytest.raises(StillmotionError, match="has no class token"):
        load(f"{kind}:{file}@pool=cls")


def test_transfer_continues_from_a_released_projection(tmp_path):
    file = tmp_path / "checkpoint.pth"
    _, block = write_released(file, "dino")
    config = small_config("dino", epochs=1, lr=1e-9, weight_decay=0.0)
    config = replace(
        config,
        image_model=ImageModelConfig(path=f"dino:{file}"),
        data=replace(config.data, image_size=IMAGE_SIZE),
        method=replace(config.method, projection=replace(config.method.projection, init="checkpoint")),
    )
    run = transfer_once(config, tmp_path / "run")
    weights = load_weights(run)
    torch.testing.assert_close(weights["projection.layers.0.weight"], block.adapter_linear.weight.detach())
    none = replace(config, image_model=ImageModelConfig(family="dino", arch="tiny"))
    with pytest.raises(StillmotionError, match="has no projection to start from"):
        transfer_once(none, tmp_path / "none")


def test_frames_of_any_model_can_have_imagenets_normalization():
    for family in ("clip", "blip"):
        config = ImageModelConfig(family=family, arch="tiny")
        assert load_image_model(config).normalization != IMAGENET_NORMALIZATION
        assert load_image_model(replace(config, normalization="imagenet")).normalization == IMAGENET_NORMALIZATION
