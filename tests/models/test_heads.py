import pytest
import torch
import torch.nn.functional as F
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import Backbone, create_backbone
from stillmotion.models.heads import VideoClassifier, count_time_steps


def test_scores_are_a_linear_map_of_features_pooled_over_time_and_space():
    model = VideoClassifier(create_backbone("small_cnn3d", channels=(4, 8)), 3).eval()
    clips = torch.randn(2, 3, 4, 16, 16)
    pooled = model.backbone.feature_map(clips).mean((2, 3, 4))
    torch.testing.assert_close(model(clips), pooled @ model.head.weight.T + model.head.bias)


def test_dropped_features_do_not_count():
    model = VideoClassifier(create_backbone("small_cnn3d", channels=(4, 8)), 3).eval()
    clips = torch.randn(2, 3, 4, 16, 16)
    mask = torch.zeros(2, 8)
    mask[1] = 1
    scores = model(clips, mask)
    torch.testing.assert_close(scores[0], model.head.bias)
    torch.testing.assert_close(scores[1], model(clips)[1])


def test_depth_counts_the_stages_above_a_weight():
    model = VideoClassifier(create_backbone("small_vit", depth=3), 3)
    depth = {name: model.layer_depth(name) for name, _ in model.named_parameters()}
    assert depth["head.weight"] == depth["head.bias"] == 0
    assert depth["backbone.norm.weight"] == depth["backbone.blocks.2.mlp.fc1.weight"] == 1
    assert depth["backbone.blocks.0.attn.qkv.weight"] == 3
    assert depth["backbone.patch_embed.proj.weight"] == 4


class Brightness(Backbone):
    """Features of a frame: its mean and mean square."""

    out_features, min_size, stage_prefixes = 2, 1, (("scale",),)

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def _trunk(self, clips):
        return clips

    def _last_stage(self, h):
        grey = self.scale * h.mean((1, 3, 4), keepdim=True)
        return torch.cat([grey, grey.square()], 1)


def brightening_clips(count=64):
    """Return clips that become brighter, each followed by its reverse, and their labels."""
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(count, 4, generator=generator).sort(1).values
    clips = torch.stack([values, values.flip(1)], 1).flatten(0, 1)[:, None, :, None, None]
    return clips.expand(-1, 3, -1, 2, 2), torch.arange(2).repeat(count)


def accuracy(pool):
    torch.manual_seed(0)
    clips, labels = brightening_clips()
    model = VideoClassifier(
        Brightness(), 2, pool=pool, num_steps=count_time_steps(Brightness(), num_frames=4, image_size=2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(clips[:64]), labels[:64]).backward()
        optimizer.step()
    scores = model(clips[64:]).detach()
    if pool == "mean":
        torch.testing.assert_close(scores[0::2], scores[1::2])
    return (scores.argmax(1) == labels[64:]).float().mean().item()


def test_a_head_that_sees_order_tells_a_clip_from_its_reverse_and_a_mean_cannot():
    assert accuracy("mean") == 0.5
    assert accuracy("concat") > 0.95


def test_rows_of_an_ordered_head_give_its_scores_step_by_step():
    model = VideoClassifier(create_backbone("small_cnn3d", channels=(4, 8)), 3, pool="concat", num_steps=4).eval()
    clips = torch.randn(2, 3, 4, 16, 16)
    weight = model.head.weight.unflatten(1, (4, -1))
    expected = torch.einsum("btd,ctd->bc", model.backbone(clips), weight) + model.head.bias
    torch.testing.assert_close(model(clips), expected)


def test_one_time_step_has_no_order():
    with pytest.raises(StillmotionError, match="needs at least 2 time steps"):
        VideoClassifier(create_backbone("small_cnn3d", channels=(4, 8)), 3, pool="concat", num_steps=1)
