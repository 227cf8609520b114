import argparse

import pytest
import torch
from safetensors.torch import save_file
from support import checkpoint_shapes
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone
from stillmotion.models.pretrained.weight_loading import load_weights, read_state_dict


def make_checkpoint(shapes, *, prefix=""):
    """Return a checkpoint with one constant per tensor, which takes a few bytes on disk."""
    constants = enumerate(shapes.items(), start=1)
    return {prefix + name: torch.tensor(index / 1000).expand(shape) for index, (name, shape) in constants}


def save_to(content, path):
    torch.save(content, path)
    return path


def has_constants(module, shapes):
    """Return whether `module` has the constants of `make_checkpoint(shapes)`, in the order of `shapes`."""
    state = {name: value for name, value in module.state_dict().items() if "num_batches" not in name}
    assert set(state) == set(shapes)
    return all(
        torch.equal(state[name], torch.full_like(state[name], index / 1000))
        for index, name in enumerate(shapes, start=1)
    )


def small_backbone():
    return create_backbone("small_cnn3d", channels=(4, 8))


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("mc3_18", checkpoint_shapes.torchvision_resnet(("3d", "2d", "2d", "2d"))),
        ("s3d", checkpoint_shapes.torchvision_s3d()),
        ("c3d", checkpoint_shapes.c3d()),
    ],
)
def test_a_bare_state_dict_with_a_classifier_loads(name, shapes, tmp_path):
    head = {"fc.weight": torch.zeros(400, 8), "classifier.1.bias": torch.zeros(400)}
    backbone = create_backbone(name)
    report = load_weights(backbone, save_to(make_checkpoint(shapes) | head, tmp_path / "public.pth"))
    assert has_constants(backbone, shapes)
    assert set(report.matched) == set(shapes)
    assert set(report.unexpected) == set(head)
    assert not report.mismatched
    assert all(missing.endswith("num_batches_tracked") for missing in report.missing)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_slowfast_checkpoint_loads(prefix, tmp_path):
    shapes = checkpoint_shapes.slowfast_slow_r50()
    state = make_checkpoint(shapes, prefix=prefix) | make_checkpoint(shapes, prefix="backbone_hist.")
    state[f"{prefix}head.projection.weight"] = torch.zeros(400, 2048)
    content = {"epoch": 196, "model_state": state, "optimizer_state": {"state": {}}, "cfg": "MODEL: slow"}
    with torch.device("meta"):
        backbone = create_backbone("slow_r50")
    backbone.to_empty(device="cpu")
    report = load_weights(backbone, save_to(content, tmp_path / "SLOW_8x8_R50.pyth"))
    assert has_constants(backbone, shapes)
    assert report.prefix == prefix


def test_a_pytorchvideo_checkpoint_loads_under_slowfast_names(tmp_path):
    state = make_checkpoint(checkpoint_shapes.pytorchvideo_slow_r50())
    state |= {"blocks.5.proj.weight": torch.zeros(400, 2048), "blocks.5.proj.bias": torch.zeros(400)}
    with torch.device("meta"):
        backbone = create_backbone("slow_r50")
    backbone.to_empty(device="cpu")
    report = load_weights(backbone, save_to({"model_state": state}, tmp_path / "SLOW_8x8_R50.pyth"))
    # Both lists have the same order, so that the constants show whether each tensor was loaded into the right one.
    assert has_constants(backbone, checkpoint_shapes.slowfast_slow_r50())
    assert report.unexpected == ("blocks.5.proj.bias", "blocks.5.proj.weight")


@pytest.mark.parametrize("stage", ["pre-trained", "fine-tuned"])
def test_a_videomae_checkpoint_loads(stage, tmp_path):
    shapes = checkpoint_shapes.videomae(width=32, depth=2, patch=8)
    if stage == "pre-trained":
        decoder = checkpoint_shapes.videomae(width=16, depth=2, patch=8)
        state = make_checkpoint(shapes, prefix="encoder.") | make_checkpoint(decoder, prefix="decoder.")
    else:
        state = {
            name.replace("norm.", "fc_norm.") if name[:4] == "norm" else name: v
            for name, v in make_checkpoint(shapes).items()
        }
    content = {"model": state, "epoch": 800, "args": argparse.Namespace(lr=1e-3)}
    backbone = create_backbone("small_vit", embed_dim=32, depth=2, num_heads=2)
    report = load_weights(backbone, save_to(content, tmp_path / "checkpoint.pth"))
    assert has_constants(backbone, shapes)
    assert not report.missing


def test_a_run_loads_from_its_online_backbone_unless_told_otherwise(tmp_path):
    torch.manual_seed(0)
    online, target = small_backbone(), small_backbone()
    state = {f"target.backbone.{name}": value for name, value in target.state_dict().items()}
    state |= {f"online.backbone.{name}": value for name, value in online.state_dict().items()}
    state |= {"online.projector.0.weight": torch.zeros(8, 8)}
    save_file(state, tmp_path / "checkpoint.safetensors")
    for prefix, source in ((None, online), ("target.backbone.", target)):
        fresh = small_backbone()
        report = load_weights(fresh, tmp_path / "checkpoint.safetensors", prefix=prefix)
        assert all(torch.equal(value, source.state_dict()[name]) for name, value in fresh.state_dict().items())
        assert report.prefix == (prefix or "online.backbone.")
        assert not report.missing


def test_heads_that_the_file_lacks_keep_their_values(tmp_path):
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = small_backbone().layers
            self.fc = nn.Linear(8, 2)

    path = save_to(small_backbone().state_dict(), tmp_path / "backbone.pt")
    module = Classifier()
    before = module.fc.weight.clone()
    report = load_weights(module, path)
    assert torch.equal(module.fc.weight, before)
    assert report.missing == ("fc.weight", "fc.bias")


def test_values_of_another_precision_are_converted(tmp_path):
    source = small_backbone()
    path = save_to({name: value.bfloat16() for name, value in source.state_dict().items()}, tmp_path / "half.pt")
    backbone = small_backbone()
    load_weights(backbone, path)
    weight = backbone.state_dict()["layers.0.0.weight"]
    assert torch.equal(weight, source.state_dict()["layers.0.0.weight"].bfloat16().float())


def test_a_backbone_that_was_not_matched_is_refused_and_left_alone(tmp_path):
    path = save_to(create_backbone("small_vit", embed_dim=32, depth=1).state_dict(), tmp_path / "vit.pt")
    backbone = small_backbone()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    with pytest.raises(
        StillmotionError,
        match=r"does not match SmallCNN3d: 10 tensors cannot be loaded .*layers.0.0.weight.* and 5 more",
    ):
        load_weights(backbone, path)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


def test_other_shapes_are_reported_and_not_inflated(tmp_path):
    state = small_backbone().state_dict()
    state["layers.1.0.weight"] = state["layers.1.0.weight"].mean(2)
    path = save_to(state, tmp_path / "flat.pt")
    backbone = small_backbone()
    with pytest.raises(StillmotionError, match=r"layers.1.0.weight \(file \(8, 4, 3, 3\), network \(8, 4, 3, 3, 3\)\)"):
        load_weights(backbone, path)


def test_missing_running_statistics_are_an_error(tmp_path):
    state = {name: value for name, value in small_backbone().state_dict().items() if "running" not in name}
    with pytest.raises(StillmotionError, match=r"layers.0.1.running_mean"):
        load_weights(small_backbone(), save_to(state, tmp_path / "bare.pt"))


def test_the_report_lists_what_was_not_used(tmp_path):
    state = {f"module.{name}": value for name, value in small_backbone().state_dict().items()}
    state |= {"module.fc.weight": torch.zeros(2, 8)}
    path = save_to(state, tmp_path / "a.pt")
    text = str(load_weights(small_backbone(), path))
    assert text == f"Loaded 12 of 12 tensors from {path} (prefix 'module.'). Unused: module.fc.weight."


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StillmotionError, match=r"nowhere\.pth does not exist"):
        load_weights(small_backbone(), tmp_path / "nowhere.pth")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_damaged_or_truncated_file_is_one_clear_error(suffix, tmp_path):
    path = tmp_path / f"bad{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(small_backbone().state_dict(), path)
    truncated = path.read_bytes()[:-500]
    for content in (b"", b"not a checkpoint", b"\x80\x02garbage", b"PK\x03\x04" + bytes(100), truncated):
        path.write_bytes(content)
        with pytest.raises(StillmotionError, match=r"bad\..* is .*Download it again"):
            load_weights(small_backbone(), path)


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_code_in_a_file_is_not_executed(tmp_path):
    path = save_to(
        {"model": small_backbone().state_dict(), "extra": Payload(tmp_path / "executed")}, tmp_path / "evil.pth"
    )
    with pytest.raises(StillmotionError, match="could execute code, and was not read"):
        load_weights(small_backbone(), path)
    assert not (tmp_path / "executed").exists()


def test_a_file_without_tensors_says_what_it_holds(tmp_path):
    with pytest.raises(StillmotionError, match="no named tensors, only epoch, cfg"):
        read_state_dict(save_to({"epoch": 1, "cfg": "x"}, tmp_path / "none.pt"))
    with pytest.raises(StillmotionError, match="no named tensors, only list"):
        read_state_dict(save_to([torch.zeros(1)], tmp_path / "list.pt"))


def test_weights_of_another_kind_of_number_are_refused_and_rounded_ones_named(tmp_path, caplog):
    state = small_backbone().state_dict()
    integers = {name: value.to(torch.int8) for name, value in state.items()}
    with pytest.raises(StillmotionError, match=r"int8\.pth: .* is stored as int8, but the network needs float32"):
        load_weights(small_backbone(), save_to(integers, tmp_path / "int8.pth"))
    doubles = {name: value.double() if value.is_floating_point() else value for name, value in state.items()}
    load_weights(small_backbone(), save_to(doubles, tmp_path / "float64.pth"))
    assert "float64.pth holds float64 weights, which are rounded" in caplog.text
