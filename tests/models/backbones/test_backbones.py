import pytest
import torch
from support import checkpoint_shapes
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone, list_backbones

# Parameters, width, and time steps for 16 frames with the original strides. The first four counts are the published
# ones of torchvision (33371472, 31505325, 11695440, 8320048) without the classifiers of 400 classes.
EXPECTED_SIZES = {
    "r3d_18": (33_166_272, 512, 2),
    "r2plus1d_18": (31_300_125, 512, 2),
    "mc3_18": (11_490_240, 512, 16),
    "s3d": (7_910_048, 1024, 2),
    "s3d_g": (9_098_000, 1024, 2),
    "slow_r50": (31_634_496, 2048, 16),
    "i3d": (12_287_264, 1024, 2),
    "c3d": (27_655_936, 512, 2),
    "vit_b": (86_227_200, 768, 8),
    "small_cnn3d": (164_628, 96, 2),
    "small_vit": (484_128, 96, 8),
    "tokens_cnn": (14_432, 32, 8),
}
TUBELETS = {"vit_b", "small_vit"}
PUBLIC = {
    "r3d_18": checkpoint_shapes.torchvision_resnet(("3d", "3d", "3d", "3d")),
    "mc3_18": checkpoint_shapes.torchvision_resnet(("3d", "2d", "2d", "2d")),
    "r2plus1d_18": checkpoint_shapes.torchvision_resnet(("2+1d", "2+1d", "2+1d", "2+1d")),
    "s3d": checkpoint_shapes.torchvision_s3d(),
    "s3d_g": checkpoint_shapes.torchvision_s3d(gated=True),
    "slow_r50": checkpoint_shapes.slowfast_slow_r50(),
    "i3d": checkpoint_shapes.inception_i3d(),
    "c3d": checkpoint_shapes.c3d(),
    "vit_b": checkpoint_shapes.videomae(),
}


def on_meta(name: str, **options):
    with torch.device("meta"):
        return create_backbone(name, **options)


def meta_clip(*shape: int):
    return torch.zeros(shape, device="meta")


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    state = module.state_dict()
    return {name: tuple(value.shape) for name, value in state.items() if "num_batches" not in name}


def test_facts_cover_every_backbone():
    assert set(list_backbones()) == set(EXPECTED_SIZES)


@pytest.mark.parametrize("name", EXPECTED_SIZES)
def test_parameter_count_and_width_are_those_documented(name):
    backbone = on_meta(name)
    count, width, _ = EXPECTED_SIZES[name]
    assert sum(p.numel() for p in backbone.parameters()) == count
    assert backbone.out_features == width


@pytest.mark.parametrize("name", EXPECTED_SIZES)
def test_time_is_kept_and_only_space_is_pooled(name):
    backbone = on_meta(name)
    clip = meta_clip(2, 3, 16, 64, 96)
    steps = 8 if name in TUBELETS else 16
    assert backbone(clip).shape == (2, steps, backbone.out_features)
    feature_map = backbone.feature_map(clip)
    assert feature_map.shape[:3] == (2, backbone.out_features, steps)
    assert feature_map.shape[3] > 1
    assert feature_map.shape[4] > feature_map.shape[3]


@pytest.mark.parametrize("name", EXPECTED_SIZES)
def test_original_strides_need_no_other_parameters(name):
    original = on_meta(name, per_frame_features=False)
    assert original(meta_clip(2, 3, 16, 64, 64)).shape == (2, EXPECTED_SIZES[name][2], original.out_features)
    assert shapes(original) == shapes(on_meta(name))


@pytest.mark.parametrize("name", PUBLIC)
def test_names_and_shapes_are_the_public_ones(name):
    assert shapes(on_meta(name)) == PUBLIC[name]


@pytest.mark.parametrize("name", EXPECTED_SIZES)
def test_each_parameter_belongs_to_exactly_one_stage(name):
    backbone = on_meta(name)
    names = set()
    for parameter, _ in backbone.named_parameters():
        owners = [
            index
            for index, prefixes in enumerate(backbone.stage_prefixes)
            if any(parameter.startswith(prefix + ".") for prefix in prefixes)
        ]
        assert owners == [backbone.stage_index(parameter)]
        names.update(owners)
    assert names == set(range(len(backbone.stage_prefixes)))
    with pytest.raises(KeyError):
        backbone.stage_index("head.weight")


@pytest.mark.parametrize("name", ["small_cnn3d", "small_vit", "mc3_18", "s3d_g"])
def test_forward_is_late_of_early_which_late_leaves_alone(name):
    torch.manual_seed(0)
    backbone = create_backbone(name).eval()
    clip = torch.randn(2, 3, 4, 32, 32)
    h = backbone.forward_trunk(clip)
    before = h.clone()
    first, second = backbone.forward_last_stage(h), backbone.forward_last_stage(h)
    assert torch.equal(h, before)
    assert torch.equal(first, second)
    assert torch.equal(first, backbone(clip))
    torch.testing.assert_close(first, backbone.feature_map(clip).mean((3, 4)).transpose(1, 2))


@pytest.mark.parametrize("name", ["r3d_18", "slow_r50", "s3d", "c3d", "small_cnn3d", "small_vit"])
def test_late_uses_the_last_stage_alone(name):
    backbone = on_meta(name)
    h = backbone.forward_trunk(meta_clip(2, 3, 4, 32, 32)).detach()
    last = [p for n, p in backbone.named_parameters() if backbone.stage_index(n) == len(backbone.stage_prefixes) - 1]
    others = [p for n, p in backbone.named_parameters() if backbone.stage_index(n) < len(backbone.stage_prefixes) - 1]
    loss = backbone.forward_last_stage(h).sum()
    assert all(grad is not None for grad in torch.autograd.grad(loss, last, retain_graph=True))
    assert all(grad is None for grad in torch.autograd.grad(loss, others, allow_unused=True))


@pytest.mark.parametrize("name", EXPECTED_SIZES)
def test_the_least_size_and_length_that_are_announced_work(name):
    for keep_time in (True, False):
        backbone = on_meta(name, per_frame_features=keep_time).eval()
        size, frames = backbone.min_size, backbone.min_frames
        assert backbone(meta_clip(1, 3, frames, size, size)).shape[1] >= 1
        with pytest.raises(
            StillmotionError, match=rf"{size - 1}×{size} pixels.*at least {size}×{size}.*--data.image-size"
        ):
            backbone(meta_clip(1, 3, frames, size - 1, size))


@pytest.mark.parametrize(
    ("name", "keep_time", "shape", "message"),
    [
        ("s3d", False, (1, 3, 7, 64, 64), r"Clips have 7 frames; S3D needs at least 8\. .*--data.num-frames"),
        ("small_vit", True, (1, 3, 5, 32, 32), "5 frames; .* at least 2, in multiples of 2"),
        ("vit_b", True, (1, 3, 4, 224, 225), "224×225 pixels; .* multiples of 16"),
        ("r3d_18", True, (3, 8, 64, 64), r"shape \(3, 8, 64, 64\); .*\(batch, 3, frames, height, width\)"),
        ("r3d_18", True, (2, 1, 8, 64, 64), "three color channels"),
    ],
)
def test_a_clip_that_does_not_fit_is_refused_with_a_remedy(name, keep_time, shape, message):
    with pytest.raises(StillmotionError, match=message):
        on_meta(name, per_frame_features=keep_time)(meta_clip(*shape))
    with pytest.raises(StillmotionError, match=r"torch.uint8; .* normalize"):
        on_meta(name)(meta_clip(1, 3, 16, 64, 64).byte())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("small_cnn3d", {"channels": ()}, "one or more positive numbers"),
        ("small_cnn3d", {"num_blocks": -1}, "num_blocks is -1"),
        ("small_vit", {"embed_dim": 10, "num_heads": 4}, "embed_dim is 10; .*divisible by num_heads"),
        ("small_vit", {"num_heads": 0}, "num_heads 0.*at least 1"),
        ("small_cnn3d", {"chanels": (8, 16)}, "no option 'chanels'; did you mean channels"),
        ("small_cnn3d", {"temporal_padding": "reflect"}, "temporal_padding is 'reflect'; must be replicate or zeros"),
        ("tokens_cnn", {"channels": (8,)}, "two or more positive numbers"),
        ("tokens_cnn", {"grid_size": 0}, "grid_size is 0"),
        ("i3d", {"num_classes": -1}, "num_classes is -1"),
        ("r3d18", {}, "no backbone 'r3d18'; did you mean r3d_18"),
    ],
)
def test_options_out_of_range_are_refused(name, options, message):
    with pytest.raises(StillmotionError, match=message):
        create_backbone(name, **options)


def test_small_networks_take_their_options():
    deep = on_meta("small_cnn3d", channels=(8, 16), num_blocks=2)
    assert deep(meta_clip(1, 3, 3, 32, 32)).shape == (1, 3, 16)
    assert "layers.1.4.conv2.0.weight" in deep.state_dict()
    per_frame = on_meta("small_vit", embed_dim=32, depth=2, num_heads=2, tubelet_size=1)
    assert per_frame(meta_clip(1, 3, 3, 32, 32)).shape == (1, 3, 32)
