import numpy as np
import pytest
import torch
from torch import nn

from stillmotion.models.backbones import create_backbone, double_backward_mode
from stillmotion.models.backbones.video_vit import sincos_positions, temporal_attention_bias


def videomae_table(count: int, width: int) -> torch.Tensor:
    """VideoMAE's position table by its definition: sin and cos of position / 10000^(2⌊j/2⌋/width)."""
    angle = np.arange(count)[:, None] / np.power(10000.0, 2 * (np.arange(width) // 2) / width)
    return torch.tensor(np.where(np.arange(width) % 2, np.cos(angle), np.sin(angle)), dtype=torch.float32)


def test_positions_at_the_reference_size_are_videomaes():
    table = sincos_positions((8, 14, 14), 768, reference_side=14)
    torch.testing.assert_close(table.flatten(0, 2), videomae_table(8 * 14 * 14, 768), atol=3e-4, rtol=0)


def test_positions_of_a_finer_grid_lie_between_those_of_the_reference():
    reference, finer = (
        sincos_positions((2, 4, 4), 64, reference_side=4),
        sincos_positions((2, 8, 8), 64, reference_side=4),
    )
    slowest = slice(-2, -1)
    pairs = finer.unflatten(1, (4, 2)).unflatten(3, (4, 2))[..., slowest].mean((2, 4))
    torch.testing.assert_close(pairs, reference[..., slowest], atol=1e-5, rtol=0)


def test_any_frame_size_and_clip_length_works():
    backbone = create_backbone("small_vit").eval()
    for frames, height, width in ((2, 8, 8), (6, 40, 24), (20, 32, 32)):
        assert backbone(torch.randn(1, 3, frames, height, width)).shape == (1, frames // 2, 96)


def test_with_zeros_positions_make_equal_patches_of_different_times_differ():
    torch.manual_seed(0)
    features = create_backbone("small_vit", temporal_padding="zeros").eval()(torch.ones(1, 3, 4, 32, 32))
    assert not torch.allclose(features[:, 0], features[:, 1])


def test_heads_lean_to_both_sides_and_by_less_from_head_to_head():
    leaning = temporal_attention_bias(5, 4)
    assert (leaning.diagonal(dim1=1, dim2=2) == 0).all()
    assert (leaning.flatten(1).amin(1).diff() > 0).all()
    for head, steep in enumerate((-1, 1, -1, 1)):
        past, future = leaning[head, 2, 1], leaning[head, 2, 3]
        assert (past == 4 * future) if steep < 0 else (future == 4 * past)


@pytest.mark.parametrize("border", ["replicate", "zeros"])
def test_time_has_a_direction(border):
    torch.manual_seed(0)
    backbone = create_backbone("small_vit", temporal_padding=border).eval()
    for layer in backbone.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.2)
    clip = torch.randn(1, 3, 8, 32, 32)
    forward, backward = backbone(clip), backbone(clip.unflatten(2, (4, 2)).flip(2).flatten(2, 3))
    assert not torch.allclose(forward, backward.flip(1), atol=1e-2)


def test_plain_attention_gives_what_fused_attention_gives():
    torch.manual_seed(0)
    backbone = create_backbone("small_vit").eval()
    clip = torch.randn(2, 3, 4, 32, 32)
    with double_backward_mode(backbone):
        plain = backbone(clip)
    torch.testing.assert_close(plain, backbone(clip), atol=1e-5, rtol=1e-5)
