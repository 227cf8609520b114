"""The detector: dilated networks, the computation of the head, and frozen backbones."""

import pytest
import torch

from stillmotion.errors import StillmotionError
from stillmotion.functional.boxes import roi_align
from stillmotion.models.backbones import create_backbone
from stillmotion.models.detector import ActionDetector, RoIHeadConfig, dilate_last_stage

RESNETS = {
    "slow_r50": {},
    "r3d_18": {},
    "r2plus1d_18": {},
    "mc3_18": {},
    "small_cnn3d": {"channels": (4, 6, 8), "num_blocks": 1},
}


@pytest.mark.parametrize("name", RESNETS)
def test_the_last_stage_of_a_resnet_keeps_the_resolution_of_the_one_before(name):
    backbone = create_backbone(name, **RESNETS[name]).eval()
    weights = {key: value.clone() for key, value in backbone.state_dict().items()}
    clip = torch.rand(1, 3, 2, 32, 32)
    with torch.no_grad():
        before, features = backbone.forward_trunk(clip), backbone.feature_map(clip)
        assert dilate_last_stage(backbone)
        dilated = backbone.feature_map(clip)
    assert dilated.shape == (*features.shape[:3], *before.shape[-2:])
    assert dilated.shape[-1] == 2 * features.shape[-1]
    assert all(torch.equal(value, weights[key]) for key, value in backbone.state_dict().items())


@pytest.mark.parametrize(
    ("name", "options"),
    [("small_vit", {"embed_dim": 16, "depth": 1, "num_heads": 1}), ("small_cnn3d", {"channels": (4,)})],
)
def test_other_networks_keep_their_stride(name, options):
    backbone = create_backbone(name, **options).eval()
    clip = torch.rand(1, 3, 2, 32, 32)
    with torch.no_grad():
        before = backbone.feature_map(clip)
        assert not dilate_last_stage(backbone)
        assert torch.equal(backbone.feature_map(clip), before)


def small_detector(**options):
    torch.manual_seed(0)
    return ActionDetector(create_backbone("small_cnn3d", channels=(4, 8)), 5, RoIHeadConfig(**options))


BOXES = [
    torch.tensor([[2.0, 3.0, 14.0, 12.0], [0.0, 0.0, 6.0, 20.0]]),
    torch.zeros(0, 4),
    torch.tensor([[4.0, 4, 9, 9]]),
]


def test_logits_are_of_the_largest_features_in_each_box():
    detector, clips = small_detector().eval(), torch.rand(3, 3, 4, 20, 24)
    result = detector(clips, BOXES)
    assert result.shape == (3, 5)
    maps = detector.backbone.feature_map(clips).mean(2)
    assert maps.shape[-2:] == (10, 12)  # a stride of 2
    inside = roi_align(maps[2:], [BOXES[2] / 2])
    expected = detector.classifier(inside.flatten(2).max(2).values)
    torch.testing.assert_close(result[2:], expected)


def test_a_box_replicated_along_time_gives_the_same_as_pooling_first():
    maps, boxes = torch.rand(2, 3, 4, 6, 6), BOXES[0] / 3
    per_step = torch.stack([roi_align(maps[:, :, t], [boxes, boxes]) for t in range(4)]).mean(0)
    torch.testing.assert_close(roi_align(maps.mean(2), [boxes, boxes]), per_step)


def test_dropouts_factors_act_on_the_pooled_features():
    detector, clips = small_detector().eval(), torch.rand(3, 3, 4, 20, 24)
    none = detector(clips, BOXES, torch.zeros(3, 8))
    torch.testing.assert_close(none, detector.classifier.bias.expand(3, 5))


def test_no_boxes_at_all_have_no_logits_and_a_gradient_of_zero():
    detector = small_detector().train()
    result = detector(torch.rand(2, 3, 4, 16, 16), [torch.zeros(0, 4)] * 2)
    assert result.shape == (0, 5)
    result.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in detector.parameters())


def test_a_frozen_backbone_neither_learns_nor_moves_its_norms():
    detector = small_detector(freeze_backbone=True).train()
    before = {key: value.clone() for key, value in detector.backbone.state_dict().items()}
    detector(torch.rand(3, 3, 4, 20, 24), BOXES).square().sum().backward()
    assert list(detector.trainable_parameters()) == ["classifier.weight", "classifier.bias"]
    assert all(p.grad is None for p in detector.backbone.parameters())
    assert all(torch.equal(value, before[key]) for key, value in detector.backbone.state_dict().items())
    assert set(small_detector().trainable_parameters()) == {name for name, _ in small_detector().named_parameters()}


def test_stages_are_counted_from_the_classifier_down():
    detector = small_detector()
    depths = {name: detector.layer_depth(name) for name in detector.trainable_parameters()}
    assert depths["classifier.weight"] == 0
    assert depths["backbone.layers.1.0.weight"] == 1
    assert depths["backbone.layers.0.0.weight"] == 2


def test_half_precision_sees_the_same_boxes():
    maps = torch.rand(1, 4, 40, 40)
    boxes = [torch.tensor([[301.0, 299.5, 315.2, 310.1]])]
    exact, half_precision = (roi_align(m, boxes, spatial_scale=1 / 8) for m in (maps, maps.bfloat16()))
    torch.testing.assert_close(half_precision.float(), exact, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("options", [{"roi_size": 0}, {"sampling_ratio": -1}, {"dropout": 1.0}])
def test_impossible_heads_are_refused(options):
    with pytest.raises(StillmotionError, match=r"head\."):
        RoIHeadConfig(**options)
