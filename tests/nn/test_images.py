import math

import pytest
import torch
from tiny_models import save_model

from stillmotion.errors import StillmotionError
from stillmotion.functional.cycle import cycle_accuracy
from stillmotion.functional.positions import cut_windows, resize_grid
from stillmotion.nn.images import FAMILIES, ImagesConfig, TokensBackbone, load_images, random_images
from stillmotion.nn.originals import load_original


def tiny(family, **options):
    images = random_images(ImagesConfig(family=family, arch="tiny", **options))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for name, weight in images.named_parameters():  # fresh weights are too small to tell places apart
            if "position" not in name:
                weight += 0.1 * torch.randn_like(weight)
    return images


def frames(n=2, height=32, width=32, seed=0):
    return torch.randn(n, 3, height, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_its_own_tokens_without_the_class_token(family):
    images, x = tiny(family), frames()
    options = {}
    if family == "mae":
        options["noise"] = torch.arange(16.0).expand(2, -1)
    with torch.no_grad():
        wanted = images.model(x, **options).last_hidden_state[:, -16:]
        torch.testing.assert_close(images.tokens(x), wanted)
    assert images.tokens(x).shape == (2, 16, 32)
    assert not any(p.requires_grad for p in images.parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_any_image_size_has_the_positions_that_transformers_interpolates(family):
    images, x = tiny(family), frames(height=48, width=24)
    options = {"interpolate_pos_encoding": True} if images._asked else {}
    if family == "mae":
        options["noise"] = torch.arange(18.0).expand(2, -1)
    with torch.no_grad():
        wanted = images.model(x, **options).last_hidden_state[:, -18:]
        torch.testing.assert_close(images.tokens(x), wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_positions_can_be_replaced_for_all_frames_or_for_each(family):
    images, x = tiny(family), frames()
    own = images.positions(4, 4)
    other = own.flip(0) * 0.7
    with torch.no_grad():
        plain, moved = images.tokens(x), images.tokens(x, other)
        each = images.tokens(x, torch.stack([own, other]))
        after = images.tokens(x)
    assert (plain - moved).abs().max() > 1e-4
    torch.testing.assert_close(each, torch.stack([plain[0], moved[1]]), atol=1e-5, rtol=1e-4)
    assert torch.equal(after, plain), "replaced positions must not stay"


@pytest.mark.parametrize("family", ["dinov2", "dinov3"])
def test_frames_and_positions_that_are_turned_together_give_turned_tokens(family):
    """What sees the same patches at the same positions says the same, wherever in the sequence they are."""
    images, x = tiny(family), frames(1)
    with torch.no_grad():
        embed = images.model.embeddings
        conv = embed.patch_embeddings if family == "dinov3" else embed.patch_embeddings.projection
        conv.weight.copy_(conv.weight.mean((2, 3), keepdim=True).expand_as(conv.weight))  # blind to a patch's inside
        plain = images.tokens(x).unflatten(1, (4, 4))
        turned = images.tokens(x.flip(2), images.positions(4, 4).flip(0)).unflatten(1, (4, 4))
    torch.testing.assert_close(turned, plain.flip(1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["dinov2", "ijepa"])
def test_positions_alone_bring_patches_back_unless_they_are_augmented(family):
    """The shortcut: on a frame without any content, only positions tell patches apart."""
    images, blank = tiny(family), torch.zeros(1, 3, 32, 32)
    spread = 20 * images.positions(4, 4)
    window = cut_windows(resize_grid(spread, 44, 44), [(30, 12)], 4, 4)
    with torch.no_grad():
        seen, moved = images.tokens(blank, spread), images.tokens(blank, window)
    assert cycle_accuracy(seen, seen, seen).item() == 1
    assert cycle_accuracy(seen, seen, moved).item() <= 0.25


def test_tokens_after_a_block_are_that_blocks(tmp_path):
    folder, x = save_model("dinov2", tmp_path / "m"), frames(height=42, width=28)
    last, first = (load_images(ImagesConfig(path=str(folder), layer=layer)) for layer in (None, 1))
    with torch.no_grad():
        found = last.model(x, output_hidden_states=True)
        torch.testing.assert_close(first.tokens(x), found.hidden_states[1][:, 1:])
        torch.testing.assert_close(last.tokens(x), found.last_hidden_state[:, 1:])


def test_mae_from_a_configuration_has_sines_and_cosines_for_positions():
    table = random_images(ImagesConfig(family="mae", arch="tiny")).positions(4, 4)
    rate = 10000 ** (-1 / 8)
    assert table[2, 3, 1].item() == pytest.approx(math.sin(3 * rate), abs=1e-6)  # the column comes first
    assert table[2, 3, 16 + 8].item() == pytest.approx(math.cos(2), abs=1e-6)


def original_names(model):
    """A ViTModel's weights under the names of MoCo v3, iBOT and DINO."""
    found = {}
    plain = {
        "embeddings.cls_token": "cls_token",
        "embeddings.position_embeddings": "pos_embed",
        "embeddings.patch_embeddings.projection": "patch_embed.proj",
        "layernorm": "norm",
        "layernorm_before": "norm1",
        "layernorm_after": "norm2",
        "attention.o_proj": "attn.proj",
    }
    weights = model.state_dict()
    for name, value in weights.items():
        if "q_proj" in name:
            joined = [weights[name.replace("q_proj", f"{letter}_proj")] for letter in "qkv"]
            name, value = name.replace("attention.q_proj", "attn.qkv"), torch.cat(joined)
        elif "k_proj" in name or "v_proj" in name:
            continue
        stem, _, field = name.rpartition(".")
        if name.startswith("layers."):
            _, number, part = stem.split(".", 2)
            found[f"blocks.{number}.{plain.get(part, part)}.{field}"] = value
        else:
            found[plain[name] if name in plain else f"{plain[stem]}.{field}"] = value
    return found


@pytest.mark.parametrize(
    ("family", "packed"),
    [
        ("mocov3", lambda w: {"epoch": 3, "state_dict": {f"module.base_encoder.{k}": v for k, v in w.items()}}),
        ("ibot", lambda w: {"state_dict": w}),
        ("ibot", lambda w: {"student": {}, "teacher": {f"backbone.{k}": v for k, v in w.items()}}),
        ("dino", lambda w: w),
    ],
)
def test_original_checkpoints_load_into_a_vit(tmp_path, family, packed):
    import transformers

    heads = 12 if family == "mocov3" else 1
    sizes = {"hidden_size": 48, "num_attention_heads": heads, "num_hidden_layers": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=32, patch_size=8, layer_norm_eps=1e-6, **sizes)
    model = transformers.ViTModel(config, add_pooling_layer=False).eval()
    names = original_names(model) | {"head.weight": torch.zeros(3, 48)}
    if family == "mocov3":
        content = packed(names)
        content["state_dict"] |= {f"module.momentum_encoder.{k}": torch.zeros_like(v) for k, v in names.items()}
    else:
        content = packed(names)
    torch.save(content, tmp_path / "original.pth")
    images = load_images(ImagesConfig(path=str(tmp_path / "original.pth"), family=family))
    x = frames()
    with torch.no_grad():
        torch.testing.assert_close(images.tokens(x), model(x).last_hidden_state[:, 1:])


def test_a_projected_model_is_a_backbone():
    images = tiny("dinov2")
    project = torch.nn.Linear(32, 32)
    backbone = TokensBackbone(images, project)
    clip = torch.randn(2, 3, 3, 32, 24)
    with torch.no_grad():
        found, features = backbone.feature_map(clip), backbone(clip)
        wanted = project(images.tokens(clip[1, :, 2][None]))[0]
    torch.testing.assert_close(found[1, :, 2].flatten(1).T, wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(features, found.mean((3, 4)).transpose(1, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: load_images(ImagesConfig(path=str(p))), "has no config.json"),
        (lambda p: load_images(ImagesConfig()), "no image model is given"),
        (lambda p: load_images(ImagesConfig(path=str(save_model("bert", p / "b")))), "holds a bert"),
        (lambda p: load_images(ImagesConfig(path=str(save_model("vit", p / "v")), family="dinov2")), "holds a vit"),
        (lambda p: load_images(ImagesConfig(family="dino", arch="tiny", layer=5)), "blocks 1 to 2"),
        (lambda p: tiny("dino").tokens(frames(height=33)), "33×32 pixels; .* a multiple of 8"),
        (lambda p: tiny("dino").tokens(frames(), torch.zeros(3, 4, 32)), r"take \(4, 4, 32\)"),
    ],
)
def test_errors_say_what_to_do(tmp_path, make, message):
    with pytest.raises(StillmotionError, match=message):
        make(tmp_path)


def test_a_file_that_is_no_checkpoint_of_the_family_is_named(tmp_path):
    torch.save({"state_dict": {"conv.weight": torch.zeros(2)}}, tmp_path / "x.pth")
    with pytest.raises(StillmotionError, match="no patch_embed"):
        load_original(tmp_path / "x.pth", "ibot")
    with pytest.raises(StillmotionError, match=r"--images\.family"):
        load_images(ImagesConfig(path=str(tmp_path / "x.pth")))
