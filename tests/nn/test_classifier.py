import torch

from stillmotion.nn.backbones import create_backbone
from stillmotion.nn.classifier import Classifier


def test_scores_are_a_linear_map_of_features_pooled_over_time_and_space():
    model = Classifier(create_backbone("small_resnet3d", channels=(4, 8)), 3).eval()
    clips = torch.randn(2, 3, 4, 16, 16)
    pooled = model.backbone.feature_map(clips).mean((2, 3, 4))
    torch.testing.assert_close(model(clips), pooled @ model.head.weight.T + model.head.bias)


def test_dropped_features_do_not_count():
    model = Classifier(create_backbone("small_resnet3d", channels=(4, 8)), 3).eval()
    clips = torch.randn(2, 3, 4, 16, 16)
    kept = torch.zeros(2, 8)
    kept[1] = 1
    scores = model(clips, kept)
    torch.testing.assert_close(scores[0], model.head.bias)
    torch.testing.assert_close(scores[1], model(clips)[1])


def test_depth_counts_the_stages_above_a_weight():
    model = Classifier(create_backbone("small_vit", depth=3), 3)
    depth = {name: model.depth(name) for name, _ in model.named_parameters()}
    assert depth["head.weight"] == depth["head.bias"] == 0
    assert depth["backbone.norm.weight"] == depth["backbone.blocks.2.mlp.fc1.weight"] == 1
    assert depth["backbone.blocks.0.attn.qkv.weight"] == 3
    assert depth["backbone.patch_embed.proj.weight"] == 4
