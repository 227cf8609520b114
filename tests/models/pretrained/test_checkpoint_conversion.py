"""Original checkpoints of every family against reference networks with the authors' parameter names."""

import os
import pickle
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from support.reference_networks import (
    CHECKPOINT_KINDS,
    IMAGE_SIZE,
    PATCH_SIZE,
    TEXT_WEIGHTS,
    build_network,
    save_checkpoint,
)
from torch import nn

from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import CLIP_NORMALIZATION, IMAGENET_NORMALIZATION
from stillmotion.models.pretrained.checkpoint_conversion import detect_family, load_original_checkpoint
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.frozen_image_model import ImageModelConfig, load_image_model
from stillmotion.models.pretrained.transformers_backbone import load_transformers_backbone

SIZES = ((IMAGE_SIZE, IMAGE_SIZE), (5 * PATCH_SIZE, 3 * PATCH_SIZE))
AMBIGUOUS = ("openclip", "mocov3-base", "ijepa-encoder")  # families that are not detected automatically


def frames(height, width):
    return torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))


def family(kind):
    return kind.removesuffix("-registers")


def close(images, expected, atol=2e-5):
    with torch.no_grad():
        for size in SIZES:
            torch.testing.assert_close(
                images.patch_tokens(frames(*size)), expected(frames(*size)), atol=atol, rtol=1e-4
            )


def test_every_family_has_a_file_here():
    assert {family(kind) for kind in CHECKPOINT_KINDS} == set(CHECKPOINT_FAMILIES)


@pytest.mark.parametrize("kind", CHECKPOINT_KINDS)
def test_an_original_checkpoint_gives_its_networks_tokens_at_any_size(kind, tmp_path):
    file = tmp_path / "original.pth"
    expected = save_checkpoint(kind, file)
    loaded = load_image_model(ImageModelConfig(path=f"{family(kind)}:{file}"))
    close(loaded, expected)
    assert loaded.normalization == (
        CLIP_NORMALIZATION if kind in ("clip", "openclip", "blip") else IMAGENET_NORMALIZATION
    )
    assert (loaded.patch_size, loaded.image_size, loaded.out_features) == (
        PATCH_SIZE,
        IMAGE_SIZE if kind != "dinov3" else 224,
        loaded.model.config.hidden_size,
    )
    if kind not in AMBIGUOUS:
        assert detect_family(file) == family(kind)
        assert load_image_model(ImageModelConfig(path=str(file))).model_type == loaded.model_type


@pytest.mark.parametrize("kind", CHECKPOINT_KINDS)
def test_a_folder_of_the_same_weights_gives_the_same_tokens(kind, tmp_path):
    file = tmp_path / "original.pth"
    expected = save_checkpoint(kind, file)
    load_original_checkpoint(file, family(kind)).save_pretrained(tmp_path / "folder")
    if kind == "dinov3":  # the file has its frequencies in bfloat16, a folder computes them
        rates = expected.rope_embed.periods
        expected.rope_embed.periods = 100.0 ** (torch.arange(len(rates)) / len(rates))
    close(load_image_model(ImageModelConfig(path=str(tmp_path / "folder"))), expected)
    backbone, intake = load_transformers_backbone(tmp_path / "folder")
    assert intake.normalization == (
        CLIP_NORMALIZATION if kind in ("clip", "openclip", "blip") else IMAGENET_NORMALIZATION
    )
    with torch.no_grad():
        result = backbone.feature_map(frames(*SIZES[0])[:, :, None])[:, :, 0].flatten(2).transpose(1, 2)
        torch.testing.assert_close(result, expected(frames(*SIZES[0])), atol=2e-5, rtol=1e-4)


def test_safetensors_and_bare_networks_are_read_too(tmp_path):
    for kind in ("dino", "mae", "dinov2", "clip", "openclip"):
        network = build_network(kind)
        save_file(network.state_dict(), tmp_path / "bare.safetensors")
        close(load_image_model(ImageModelConfig(path=f"{kind}:{tmp_path / 'bare.safetensors'}")), network)


class Whole(nn.Module):
    """Compile CLIP as OpenAI did: the image encoder in half precision, and other numbers."""

    def __init__(self, visual):
        super().__init__()
        self.visual = visual
        self.logit_scale = nn.Parameter(TEXT_WEIGHTS["logit_scale"])
        for name in ("input_resolution", "context_length", "vocab_size"):
            self.register_buffer(name, torch.tensor(IMAGE_SIZE))

    def forward(self, x):
        return self.visual(x)


@pytest.mark.filterwarnings("ignore")  # TorchScript is deprecated
def test_the_tensors_of_a_compiled_archive_are_read_and_its_code_is_not(tmp_path, monkeypatch):
    network, file = build_network("clip"), tmp_path / "ViT-B-16.pt"
    torch.jit.save(torch.jit.trace(Whole(network), frames(IMAGE_SIZE, IMAGE_SIZE)), file)
    monkeypatch.setattr(torch.jit, "load", None)
    monkeypatch.setattr(torch._C, "import_ir_module", None)
    assert detect_family(file) == "clip"
    close(load_image_model(ImageModelConfig(path=str(file))), network)


class Trap:
    def __reduce__(self):
        return os.mkdir, ("sprung",)


def test_an_archive_that_would_execute_something_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("trap.pt", "w") as archive:
        archive.writestr("trap/constants.pkl", pickle.dumps(()))
        archive.writestr("trap/data.pkl", pickle.dumps(Trap()))
    with pytest.raises(StillmotionError, match="could execute code"):
        load_image_model(ImageModelConfig(path="clip:trap.pt"))
    assert not (tmp_path / "sprung").exists()


def test_names_that_the_network_does_not_know_are_listed(tmp_path):
    save_checkpoint("dinov2", tmp_path / "dinov2.pth")
    with pytest.raises(
        StillmotionError, match=r"5 unknown keys for a dino model \(.*0\.ls1\.gamma.*those of a dinov2 model"
    ):
        load_original_checkpoint(tmp_path / "dinov2.pth", "dino")
    weights = build_network("dino").state_dict()
    torch.save(weights | {"blocks.0.attn.extra": torch.zeros(1)}, tmp_path / "more.pth")
    with pytest.raises(StillmotionError, match=r"1 unknown keys for a dino model \(blocks\.0\.attn\.extra"):
        load_original_checkpoint(tmp_path / "more.pth", "dino")
    torch.save({"teacher": weights, "stray": torch.zeros(1)}, tmp_path / "beside.pth")
    with pytest.raises(StillmotionError, match=r"unknown keys beside its dino model \(stray"):
        load_original_checkpoint(tmp_path / "beside.pth", "dino")


def test_names_that_the_file_lacks_are_listed(tmp_path):
    weights = build_network("dino").state_dict()
    torch.save(weights, tmp_path / "dino.pth")
    with pytest.raises(StillmotionError, match=r"Missing: encoder\.layer\.0\.layer_scale1\.lambda1"):
        load_original_checkpoint(tmp_path / "dino.pth", "dinov2")
    with pytest.raises(StillmotionError, match=r"Unexpected: embeddings\.cls_token\. Shape mismatch: .*position"):
        load_original_checkpoint(tmp_path / "dino.pth", "ijepa")
    del weights["blocks.1.norm2.bias"]
    torch.save(weights, tmp_path / "less.pth")
    with pytest.raises(StillmotionError, match=r"Missing: layers\.1\.layernorm_after\.bias"):
        load_original_checkpoint(tmp_path / "less.pth", "dino")
    weights = build_network("dinov3").state_dict()
    del weights["rope_embed.periods"]
    torch.save(weights, tmp_path / "still.pth")
    with pytest.raises(StillmotionError, match=r"missing key .*rope_embed\.periods"):
        load_original_checkpoint(tmp_path / "still.pth", "dinov3")


@pytest.mark.parametrize("kind", ["dinov3", "clip"])
def test_weights_of_any_odd_shape_are_refused_in_one_line(kind, tmp_path):
    weights = build_network(kind).state_dict()
    for name in weights:
        if ".1." in name or name.endswith(("mask_token", "proj")):  # once more, and without leftovers
            continue
        for odd in (torch.zeros(()), torch.zeros(5, 7)):
            torch.save(weights | {name: odd}, tmp_path / "odd.pth")
            with pytest.raises(StillmotionError, match=f"{kind} model") as error_info:
                load_original_checkpoint(tmp_path / "odd.pth", kind)
            assert "\n" not in str(error_info.value)


def test_a_file_that_may_be_of_several_families_lists_them(tmp_path):
    torch.save(build_network("dino").state_dict(), tmp_path / "vit.pth")
    with pytest.raises(StillmotionError, match=r"ambiguous.*e\.g\. mae:.*: mae, ijepa, .*blip, mocov3, .*dino, ibot"):
        load_image_model(ImageModelConfig(path=str(tmp_path / "vit.pth")))
    torch.save({"conv.weight": torch.zeros(2)}, tmp_path / "x.pth")
    with pytest.raises(StillmotionError, match=r"unknown .* \(first keys: conv\.weight\)\. Supported families: mae, "):
        load_image_model(ImageModelConfig(path=str(tmp_path / "x.pth")))
    with pytest.raises(StillmotionError, match=r"no patch_embed\.proj\.weight of a ibot model; it has conv"):
        load_original_checkpoint(tmp_path / "x.pth", "ibot")


def test_of_moco_the_momentum_encoder_is_taken_and_the_other_by_name(tmp_path):
    save_checkpoint("mocov3", tmp_path / "both.pth")
    first, second = (
        load_image_model(ImageModelConfig(path=f"{f}:{tmp_path / 'both.pth'}")) for f in ("mocov3", "mocov3-base")
    )
    with torch.no_grad():
        assert not torch.allclose(
            first.patch_tokens(frames(*SIZES[0])), second.patch_tokens(frames(*SIZES[0])), atol=0.1
        )
    torch.save({f"base_encoder.{k}": v for k, v in build_network("mocov3").state_dict().items()}, tmp_path / "base.pth")
    with pytest.raises(StillmotionError, match=r"of a mocov3 model; it has the networks base_encoder"):
        load_original_checkpoint(tmp_path / "base.pth", "mocov3")


def test_loading_leaves_the_generator_and_the_file_as_they_were(tmp_path):
    save_checkpoint("dinov2", tmp_path / "dinov2.pth")
    content, before = (tmp_path / "dinov2.pth").read_bytes(), torch.random.get_rng_state()
    load_original_checkpoint(tmp_path / "dinov2.pth", "dinov2")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (tmp_path / "dinov2.pth").read_bytes() == content


def test_a_spec_with_wrong_or_contradictory_options_is_refused(tmp_path):
    save_checkpoint("dinov2", tmp_path / "dinov2.pth")
    file = tmp_path / "dinov2.pth"
    for path, message in {
        f"dinov2:{tmp_path / 'nowhere.pth'}": "does not exist",
        f"{file}@size=4": "Unknown option 'size' in .*Write @layer=NUMBER",
    }.items():
        with pytest.raises(StillmotionError, match=message):
            load_image_model(ImageModelConfig(path=path))
    with pytest.raises(StillmotionError, match="names the family dinov2, but family is dino"):
        load_image_model(ImageModelConfig(path=f"dinov2:{file}", family="dino"))
    assert load_image_model(ImageModelConfig(path=f"{file}@layer=1")).layer == 1
    (tmp_path / "torn.pth").write_bytes(file.read_bytes()[:200])
    with pytest.raises(StillmotionError, match=r"not a readable checkpoint|damaged"):
        load_image_model(ImageModelConfig(path=str(tmp_path / "torn.pth")))
