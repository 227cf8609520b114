"""A 3D CNN on frozen tokens: pixels and cached tokens give the same result, and the image model stays frozen."""

import copy

import pytest
import torch
from support.tiny_transformers import save_model

from stillmotion.errors import StillmotionError
from stillmotion.functional.token_motion import token_matches
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import Method, MethodConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig, decompose
from stillmotion.models.backbones import create_backbone
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig


def backbone(**options):
    torch.manual_seed(0)
    return create_backbone("tokens_cnn", channels=(4, 8, 8), **options)


def clip(frames=5, size=32):
    return torch.randn(2, 3, frames, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("cells", [1, 2])
@torch.no_grad()
def test_features_of_pixels_are_those_of_their_tokens(cells):
    network = backbone(grid_size=cells).eval()
    tokens = network.compute_tokens(clip())
    assert tokens.shape == (2, 32, 5, 4, 4)
    assert network(clip()).shape == (2, 5, 8 * cells**2)
    torch.testing.assert_close(network(tokens), network(clip()))


@torch.no_grad()
def test_matches_replace_the_tokens():
    network = backbone(match_radius=1).eval()
    matches = network.compute_tokens(clip())
    assert matches.shape == (2, 9, 5, 4, 4)
    tokens = backbone().compute_tokens(clip()).movedim(1, -1)
    torch.testing.assert_close(matches[:, :, :-1].movedim(1, -1), token_matches(tokens, radius=1))
    torch.testing.assert_close(network(matches), network(clip()))


@torch.no_grad()
def test_every_token_has_mean_0_and_variance_1():
    tokens = backbone().compute_tokens(clip())
    torch.testing.assert_close(tokens.mean(1), torch.zeros(2, 5, 4, 4), atol=1e-5, rtol=0)
    torch.testing.assert_close(tokens.var(1, correction=0), torch.ones(2, 5, 4, 4), atol=1e-3, rtol=0)


@torch.no_grad()
def test_cells_keep_the_positions_of_features():
    network = backbone(grid_size=2).eval()
    tokens = network.compute_tokens(clip(size=64))
    tokens[..., 5:] = tokens[..., :3].flip(-1)  # right becomes left
    tokens[..., 3:5] = 0
    features = network(tokens).unflatten(-1, (8, 2, 2))
    mirrored = network(tokens.flip(-1)).unflatten(-1, (8, 2, 2))
    assert not torch.allclose(features[..., 0, :], features[..., 1, :])
    assert features.shape == mirrored.shape


def test_the_frozen_model_has_no_gradient_and_is_not_saved_but_moves_along():
    network = backbone()
    assert all(name.startswith("layers.") for name in network.state_dict())
    assert all(name.startswith("layers.") for name, _ in network.named_parameters())
    network(clip()).sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    assert all(p.grad is None and not p.requires_grad for p in network.image_model.parameters())
    assert next(network.double().image_model.parameters()).dtype is torch.float64
    assert network(clip().double()).dtype is torch.float64


def test_a_momentum_encoder_shares_the_frozen_model():
    method = Method(MethodConfig(model=model(), objective=BYOLConfig(predictor_hidden_dim=8)))
    assert method.target.backbone.image_model is method.online.backbone.image_model
    assert copy.deepcopy(method).online.backbone.image_model is method.online.backbone.image_model


def model(**options):
    images = ImageModelConfig(family="dinov2", arch="tiny")
    return ModelConfig(
        backbone="tokens_cnn",
        stage_channels=(4, 8),
        image_model=images,
        embedding_dim=8,
        projector_hidden_dim=8,
        **options,
    )


@torch.no_grad()
def test_derivatives_of_tokens_are_taken_as_they_are():
    network = backbone().eval()
    change = network.compute_tokens(clip()).diff(dim=2)
    assert torch.equal(network.forward_trunk(change), network.layers[1](network.layers[0](change)))


@torch.no_grad()
def test_a_still_clip_has_no_dynamic_component_in_any_cell():
    network = backbone(grid_size=3).eval()
    features = network(clip(1).expand(-1, -1, 8, -1, -1))
    static, dynamic = decompose(features, StaticDynamicConfig())
    assert (dynamic.norm(dim=1) <= 1e-4 * static.norm(dim=1)).all()


def test_a_folder_that_transformers_wrote_is_the_frozen_model(tmp_path):
    folder = save_model("dinov2", tmp_path / "model")
    network = create_backbone("tokens_cnn", image_model=ImageModelConfig(path=str(folder), layer=1))
    assert (network.image_model.out_features, network.image_model.layer, network.size_divisor) == (32, 1, 14)
    with pytest.raises(StillmotionError, match="32×32 pixels; TokensCNN needs at least 14×14, in multiples of 14"):
        network(clip())


def test_clips_of_neither_colours_nor_tokens_are_refused():
    with pytest.raises(StillmotionError, match="three color channels"):
        backbone()(torch.randn(1, 5, 4, 4, 4))
    with pytest.raises(StillmotionError, match=r"Tokens are torch\.int64"):
        backbone()(torch.zeros(1, 32, 4, 4, 4, dtype=torch.long))
