"""Public weights of video networks as frozen encoders, against forward passes written from their definitions."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from support import checkpoint_shapes, small_pretrain
from torch import Tensor

from stillmotion.encoders import load, parse_spec
from stillmotion.errors import StillmotionError
from stillmotion.models.pretrained.video_checkpoints import VIDEO_CHECKPOINTS, detect_video_network

Weights = dict[str, Tensor]
KINDS = {
    "r3d_18": ("3d", "3d", "3d", "3d"),
    "mc3_18": ("3d", "2d", "2d", "2d"),
    "r2plus1d_18": ("2+1d", "2+1d", "2+1d", "2+1d"),
}
SHAPES = {
    **{network: checkpoint_shapes.torchvision_resnet(kinds) for network, kinds in KINDS.items()},
    "slow_r50": checkpoint_shapes.slowfast_slow_r50(),
    "i3d": checkpoint_shapes.inception_i3d(),
}


def random_weights(shapes) -> Weights:
    """Return random weights in half precision that preserve the scale of the input."""
    random = torch.Generator().manual_seed(0)
    weights = {}
    for name, shape in shapes.items():
        if len(shape) > 1:
            value = torch.randn(shape, generator=random) * (2 / shape[1:].numel()) ** 0.5
        elif name.endswith(("weight", "running_var")):
            value = torch.rand(shape, generator=random) + 0.5
        else:
            value = 0.1 * torch.randn(shape, generator=random)
        weights[name] = value.half()
    return weights


def constants(shapes) -> Weights:
    """Return tensors of these shapes that take a few bytes on disk."""
    return {name: torch.zeros(()).expand(shape) for name, shape in shapes.items()}


def sizes(shapes):
    return {name: torch.Size(shape) for name, shape in shapes.items()}


def norm(w: Weights, x: Tensor, at: str) -> Tensor:
    mean, variance = w[f"{at}.running_mean"], w[f"{at}.running_var"]
    return F.batch_norm(x, mean, variance, w[f"{at}.weight"], w[f"{at}.bias"], eps=1e-5)


def torchvision_forward(w: Weights, clip: Tensor, kinds: tuple[str, ...]) -> Tensor:
    """Map of torchvision's video ResNets before pooling."""

    def conv(x: Tensor, at: str, kind: str, stride: int) -> Tensor:
        if kind == "3d":
            return F.conv3d(x, w[f"{at}.0.weight"], stride=stride, padding=1)
        if kind == "2d":
            return F.conv3d(x, w[f"{at}.0.weight"], stride=(1, stride, stride), padding=(0, 1, 1))
        x = F.conv3d(x, w[f"{at}.0.0.weight"], stride=(1, stride, stride), padding=(0, 1, 1))
        return F.conv3d(norm(w, x, f"{at}.0.1").relu(), w[f"{at}.0.3.weight"], stride=(stride, 1, 1), padding=(1, 0, 0))

    if kinds[0] == "2+1d":
        x = F.conv3d(clip, w["stem.0.weight"], stride=(1, 2, 2), padding=(0, 3, 3))
        x = F.conv3d(norm(w, x, "stem.1").relu(), w["stem.3.weight"], padding=(1, 0, 0))
        x = norm(w, x, "stem.4").relu()
    else:
        x = F.conv3d(clip, w["stem.0.weight"], stride=(1, 2, 2), padding=(1, 3, 3))
        x = norm(w, x, "stem.1").relu()
    for layer, kind in enumerate(kinds, start=1):
        for block in range(2):
            at, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = norm(w, conv(x, f"{at}.conv1", kind, stride), f"{at}.conv1.1").relu()
            y = norm(w, conv(y, f"{at}.conv2", kind, 1), f"{at}.conv2.1")
            if stride == 2:
                strides = (1 if kind == "2d" else 2, 2, 2)
                x = norm(w, F.conv3d(x, w[f"{at}.downsample.0.weight"], stride=strides), f"{at}.downsample.1")
            x = (x + y).relu()
    return x


def slow_forward(w: Weights, clip: Tensor) -> Tensor:
    """Map of SlowFast's Slow 8×8 R50 before pooling."""
    x = F.conv3d(clip, w["s1.pathway0_stem.conv.weight"], stride=(1, 2, 2), padding=(0, 3, 3))
    x = F.max_pool3d(norm(w, x, "s1.pathway0_stem.bn").relu(), (1, 3, 3), (1, 2, 2), (0, 1, 1))
    for stage, depth in zip((2, 3, 4, 5), (3, 4, 6, 3), strict=True):
        for block in range(depth):
            at, stride = f"s{stage}.pathway0_res{block}", 2 if stage > 2 and block == 0 else 1
            time = 1 if stage > 3 else 0
            y = F.conv3d(x, w[f"{at}.branch2.a.weight"], padding=(time, 0, 0))
            y = norm(w, y, f"{at}.branch2.a_bn").relu()
            y = F.conv3d(y, w[f"{at}.branch2.b.weight"], stride=(1, stride, stride), padding=(0, 1, 1))
            y = norm(w, y, f"{at}.branch2.b_bn").relu()
            y = norm(w, F.conv3d(y, w[f"{at}.branch2.c.weight"]), f"{at}.branch2.c_bn")
            if block == 0:
                x = F.conv3d(x, w[f"{at}.branch1.weight"], stride=(1, stride, stride))
                x = norm(w, x, f"{at}.branch1_bn")
            x = (x + y).relu()
    return x


def assert_features(encoder, feature_map: Tensor, clip: Tensor) -> None:
    with torch.no_grad():
        result = encoder(clip).frames
    expected = feature_map.mean((3, 4)).transpose(1, 2)
    assert expected.std() > 1e-2
    torch.testing.assert_close(result, expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("network", KINDS)
def test_features_are_those_of_torchvisions_definition(network, tmp_path):
    weights = random_weights(sizes(SHAPES[network]))
    head = {"fc.weight": torch.zeros(400, 512), "fc.bias": torch.zeros(400)}
    save_file(weights | head, tmp_path / "public.safetensors")
    encoder = load(tmp_path / "public.safetensors")
    assert encoder.origin.kind == network
    clip = torch.randn(1, 3, 16, 32, 32, generator=torch.Generator().manual_seed(1))
    full = {name: value.float() for name, value in weights.items()}
    assert_features(encoder, torchvision_forward(full, clip, KINDS[network]), clip)


@pytest.mark.parametrize("source", ["slowfast", "pytorchvideo"])
def test_features_of_slow_r50_are_those_of_slowfasts_definition(source, tmp_path):
    weights = random_weights(sizes(SHAPES["slow_r50"]))
    # Both lists of names have the same order.
    names = SHAPES["slow_r50"] if source == "slowfast" else checkpoint_shapes.pytorchvideo_slow_r50()
    state = dict(zip(names, weights.values(), strict=True)) | {"head.projection.bias": torch.zeros(400)}
    torch.save({"epoch": 196, "model_state": state, "cfg": "MODEL: slow"}, tmp_path / "SLOW_8x8_R50.pyth")
    encoder = load(tmp_path / "SLOW_8x8_R50.pyth")
    assert encoder.origin.kind == "slow_r50"
    clip = torch.randn(1, 3, 4, 64, 64, generator=torch.Generator().manual_seed(1))
    full = {name: value.float() for name, value in weights.items()}
    assert_features(encoder, slow_forward(full, clip), clip)


def test_mc3_has_the_published_number_of_parameters_with_its_classifier():
    shapes = SHAPES["mc3_18"] | {"fc.weight": (400, 512), "fc.bias": (400,)}
    trained = (shape for name, shape in sizes(shapes).items() if "running" not in name)
    assert sum(shape.numel() for shape in trained) == 11_695_440


@pytest.mark.parametrize("network", VIDEO_CHECKPOINTS)
@pytest.mark.parametrize("prefix", ["", "module.", "backbone."])
def test_a_file_alone_names_its_network(network, prefix, tmp_path):
    file = tmp_path / "weights.pth"
    torch.save({"model_state": {prefix + name: v for name, v in constants(SHAPES[network]).items()}}, file)
    assert parse_spec(file).kind == network
    assert parse_spec(f"{network}:{file}").canonical == f"{network}:{file}"


def test_clips_are_those_of_the_training():
    torchvision, slowfast = (VIDEO_CHECKPOINTS[network].input_config for network in ("mc3_18", "slow_r50"))
    assert (torchvision.num_frames, torchvision.stride, torchvision.fps, torchvision.image_size) == (16, 1, 15, 112)
    assert torchvision.normalization.mean == (0.43216, 0.394666, 0.37645)
    assert torchvision.normalization.std == (0.22803, 0.22145, 0.216989)
    assert (slowfast.num_frames, slowfast.stride, slowfast.fps, slowfast.image_size) == (8, 8, 30, 224)
    assert slowfast.normalization == ((0.45, 0.45, 0.45), (0.225, 0.225, 0.225))


def test_other_networks_are_not_taken_for_these(tmp_path):
    two_pathways = constants(SHAPES["slow_r50"])
    two_pathways["s4.pathway0_res0.branch2.a.weight"] = torch.zeros(()).expand(256, 640, 3, 1, 1)
    for name, state in {
        "slowfast": two_pathways,
        "images": {"layer2.0.conv1.weight": torch.zeros(128, 64, 3, 3)},
        "vit": {"patch_embed.proj.weight": torch.zeros(8, 3, 4, 4)},
    }.items():
        torch.save(state, tmp_path / f"{name}.pth")
        assert detect_video_network(tmp_path / f"{name}.pth") is None
    (tmp_path / "torn.pth").write_bytes(b"torn")
    assert detect_video_network(tmp_path / "torn.pth") is None
    assert detect_video_network(tmp_path / "nowhere.pth") is None
    with pytest.raises(StillmotionError, match="does not match SlowR50"):
        load(f"slow_r50:{tmp_path / 'slowfast.pth'}")


def test_the_weights_of_a_run_are_given_as_its_folder(tmp_path):
    config = small_pretrain.small_config("k400-simclr")
    run = small_pretrain.train(config, tmp_path / "run")
    with pytest.raises(StillmotionError, match=r"is part of a run\. Give its folder as the encoder: .*/run"):
        load(f"mc3_18:{run / 'checkpoint.safetensors'}")
