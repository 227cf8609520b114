"""Padding in time: a clip of equal frames has no dynamic component, and both paddings follow their definition."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from stillmotion.methods.static_dynamic import StaticDynamicConfig, decompose
from stillmotion.models.backbones import create_backbone, framewise_mode, list_backbones
from stillmotion.models.backbones.i3d import SamePadConv3d
from stillmotion.models.backbones.layers import Conv3d
from stillmotion.training.pretrain.recipes_bod_vcl import PAPER_DECOMPOSITION

SIZE = 32
# Backbones whose original strides reduce the number of time steps; 8 frames per step.
STRIDED = ("r3d_18", "r2plus1d_18", "s3d", "s3d_g", "i3d", "c3d", "small_cnn3d")


def nontrivial_backbone(name, **options):
    """Return a backbone in which every layer matters: random norms, and attention that is not uniform."""
    torch.manual_seed(0)
    backbone = create_backbone(name, **options)
    for layer in backbone.modules():
        if isinstance(layer, nn.BatchNorm3d):
            nn.init.uniform_(layer.weight, 0.5, 1)
            nn.init.normal_(layer.bias, std=0.1)
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.5 * layer.in_features**-0.5)
    return backbone


def static_clip(frames, *, clips=1):
    frame = torch.randn(clips, 3, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(1))
    return frame.expand(-1, -1, frames, -1, -1)


def dynamic_shares(features):
    """Largest ‖dynamic‖ / ‖static‖ of the clips, by the library's and by the paper's decomposition."""
    frames = F.normalize(features.float(), dim=-1)
    components = [decompose(frames, config) for config in (StaticDynamicConfig(), PAPER_DECOMPOSITION)]
    return [(dynamic.norm(dim=1) / static.norm(dim=1)).max().item() for static, dynamic in components]


# Clips by mode. In training, batch norm would turn the rounding of two clips with one cell in the last stage into ±1.
CLIPS_BY_MODE = {"training": 4, "evaluation": 1}


QUICK_NETWORKS = ("small_cnn3d", "small_vit", "tokens_cnn")


def mark_slow(names):
    """Test parameters, with large networks marked as slow."""
    return [pytest.param(name, marks=() if name in QUICK_NETWORKS else pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", mark_slow(list_backbones()))
@torch.no_grad()
def test_a_still_clip_has_no_dynamic_component(name):
    for mode, clips in CLIPS_BY_MODE.items():
        backbone = nontrivial_backbone(name).train(mode == "training")
        for frames in (6, 8, 12):
            assert max(dynamic_shares(backbone(static_clip(frames, clips=clips)))) == 0, (mode, frames)


@pytest.mark.parametrize("name", mark_slow(STRIDED))
@torch.no_grad()
def test_a_still_clip_has_no_dynamic_component_at_the_original_strides(name):
    for mode, clips in CLIPS_BY_MODE.items():
        backbone = nontrivial_backbone(name, per_frame_features=False).train(mode == "training")
        for frames in (24, 33):
            assert max(dynamic_shares(backbone(static_clip(frames, clips=clips)))) == 0, (mode, frames)


@pytest.mark.parametrize("name", ["slow_r50", "r3d_18", "s3d_g", "i3d", "small_cnn3d", "small_vit"])
@torch.no_grad()
def test_with_zeros_a_still_clip_has_one(name):
    assert min(dynamic_shares(nontrivial_backbone(name, temporal_padding="zeros").eval()(static_clip(8)))) > 1e-3


@torch.no_grad()
def test_a_still_clip_has_none_in_low_precision():
    backbone = nontrivial_backbone("small_cnn3d").eval()
    with torch.autocast("cpu", torch.bfloat16):
        features = backbone(static_clip(8))
    assert features.dtype is torch.bfloat16
    assert max(dynamic_shares(features)) == 0


@pytest.mark.parametrize("name", ["slow_r50", "r2plus1d_18", "s3d", "i3d", "c3d", "small_cnn3d", "small_vit"])
@torch.no_grad()
def test_borders_have_the_same_weights_and_do_not_matter_when_strict(name):
    replicated, zeros = nontrivial_backbone(name).eval(), nontrivial_backbone(name, temporal_padding="zeros").eval()
    replicated.load_state_dict(zeros.state_dict())
    clip = torch.randn(1, 3, 4, SIZE, SIZE)
    assert not torch.allclose(replicated(clip), zeros(clip), atol=1e-3)
    if name != "small_vit":  # its positions in time stay when strict
        with framewise_mode(replicated), framewise_mode(zeros):
            torch.testing.assert_close(replicated(clip), zeros(clip))


def by_hand(x, layer, before, after):
    """Apply the convolution to a clip that is padded frame by frame."""
    frames = [x[:, :, 0]] * before + list(x.unbind(2)) + [x[:, :, -1]] * after
    space = layer.padding[1:]
    return F.conv3d(torch.stack(frames, 2), layer.weight, layer.bias, layer.stride, (0, *space), layer.dilation)


CONVOLUTIONS = {
    "3x3x3": {"kernel_size": 3, "padding": 1},
    "3x1x1": {"kernel_size": (3, 1, 1), "padding": (1, 0, 0), "bias": False},
    "7x1x1, stride 2": {"kernel_size": (7, 1, 1), "padding": (3, 0, 0), "stride": (2, 1, 1)},
    "3x3x3, stride 2": {"kernel_size": 3, "padding": 1, "stride": 2},
    "dilated in space": {"kernel_size": 3, "padding": (1, 2, 2), "dilation": (1, 2, 2)},
}


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_replicated_borders_are_a_clip_padded_by_hand_in_value_and_gradient(kind):
    torch.manual_seed(0)
    layer = Conv3d(2, 3, **CONVOLUTIONS[kind]).double()
    layer.temporal_padding = "replicate"
    pads = layer.padding[0]
    for frames in (1, 2, 5, 8):
        clip = torch.randn(2, 2, frames, 6, 6, dtype=torch.float64, requires_grad=True)
        outputs = (layer(clip), by_hand(clip, layer, pads, pads))
        torch.testing.assert_close(*outputs)
        along = torch.randn_like(outputs[0])
        gradients = (torch.autograd.grad((out * along).sum(), [clip, layer.weight]) for out in outputs)
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("frames", "stride", "pads"), [(8, 1, (3, 3)), (8, 2, (2, 3)), (9, 2, (3, 3)), (1, 1, (3, 3))])
def test_tensorflows_same_padding_is_replicated_in_time_too(frames, stride, pads):
    torch.manual_seed(0)
    layer = SamePadConv3d(2, 3, (7, 1, 1), stride=(stride, 1, 1)).double()
    layer.temporal_padding = "replicate"
    clip = torch.randn(2, 2, frames, 4, 4, dtype=torch.float64)
    torch.testing.assert_close(layer(clip), by_hand(clip, layer, *pads))


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_zeros_are_those_of_a_plain_convolution(kind):
    torch.manual_seed(0)
    layer = Conv3d(2, 3, **CONVOLUTIONS[kind])
    clip = torch.randn(2, 2, 5, 6, 6)
    expected = F.conv3d(clip, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation)
    assert torch.equal(layer(clip), expected)


def test_first_and_second_derivatives_with_replicated_borders_are_those_of_finite_differences():
    torch.manual_seed(0)
    layer = Conv3d(1, 2, 3, padding=1, stride=(2, 1, 1)).double()
    layer.temporal_padding = "replicate"
    clip = torch.randn(1, 1, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    weight = layer.weight.detach().clone().requires_grad_()

    def squared(x, w):
        return functional_call(layer, {"weight": w}, (x,)).square()

    assert gradcheck(squared, (clip, weight))
    assert gradgradcheck(squared, (clip, weight))
