import math

import pytest
import torch
from support.tiny_transformers import save_model

from stillmotion.errors import StillmotionError
from stillmotion.functional.cycle import cycle_accuracy
from stillmotion.functional.position_embeddings import crop_windows, resize_grid
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.frozen_image_model import (
    ImageModelConfig,
    load_image_model,
    random_image_model,
)


def tiny(family, **options):
    images = random_image_model(ImageModelConfig(family=family, arch="tiny", **options))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        for name, weight in images.named_parameters():  # initial weights are too small to distinguish positions
            if "position" not in name:
                weight += 0.1 * torch.randn_like(weight)
    return images


def under_last_norm(images, result):
    """Apply the last norm to the patch tokens, which CLIP's output lacks."""
    tokens = result.last_hidden_state
    return images.model.post_layernorm(tokens) if images.model_type == "clip_vision_model" else tokens


def frames(n=2, height=32, width=32, seed=0):
    return torch.randn(n, 3, height, width, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", CHECKPOINT_FAMILIES)
def test_every_family_gives_its_own_tokens_without_the_class_token(family):
    images, x = tiny(family), frames()
    options = {}
    if family == "mae":
        options["noise"] = torch.arange(16.0).expand(2, -1)
    with torch.no_grad():
        expected = under_last_norm(images, images.model(x, **options))[:, -16:]
        torch.testing.assert_close(images.patch_tokens(x), expected)
    assert images.patch_tokens(x).shape == (2, 16, 32)
    assert not any(p.requires_grad for p in images.parameters())


@pytest.mark.parametrize("family", CHECKPOINT_FAMILIES)
def test_any_image_size_has_the_positions_that_transformers_interpolates(family):
    images, x = tiny(family), frames(height=48, width=24)
    options = {"interpolate_pos_encoding": True} if images._can_interpolate_positions else {}
    if family == "mae":
        options["noise"] = torch.arange(18.0).expand(2, -1)
    with torch.no_grad():
        expected = under_last_norm(images, images.model(x, **options))[:, -18:]
        torch.testing.assert_close(images.patch_tokens(x), expected)


@pytest.mark.parametrize("family", CHECKPOINT_FAMILIES)
def test_positions_can_be_replaced_for_all_frames_or_for_each(family):
    images, x = tiny(family), frames()
    positions = images.position_grid(4, 4)
    other_positions = positions.flip(0) * 0.7
    with torch.no_grad():
        default, replaced = images.patch_tokens(x), images.patch_tokens(x, other_positions)
        per_frame = images.patch_tokens(x, torch.stack([positions, other_positions]))
        after = images.patch_tokens(x)
    assert (default - replaced).abs().max() > 1e-4
    torch.testing.assert_close(per_frame, torch.stack([default[0], replaced[1]]), atol=1e-5, rtol=1e-4)
    assert torch.equal(after, default), "replaced positions must not stay"


@pytest.mark.parametrize("family", ["dinov2", "dinov3"])
def test_frames_and_positions_that_are_turned_together_give_turned_tokens(family):
    """The tokens of patches at the same positions do not depend on their order in the sequence."""
    images, x = tiny(family), frames(1)
    with torch.no_grad():
        embed = images.model.embeddings
        conv = embed.patch_embeddings if family == "dinov3" else embed.patch_embeddings.projection
        # This weight does not distinguish pixels inside a patch.
        conv.weight.copy_(conv.weight.mean((2, 3), keepdim=True).expand_as(conv.weight))
        tokens = images.patch_tokens(x).unflatten(1, (4, 4))
        turned_tokens = images.patch_tokens(x.flip(2), images.position_grid(4, 4).flip(0)).unflatten(1, (4, 4))
    torch.testing.assert_close(turned_tokens, tokens.flip(1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ["dinov2", "ijepa"])
def test_positions_alone_bring_patches_back_unless_they_are_augmented(family):
    """The shortcut: on a frame without content, only positions distinguish the patches."""
    images, blank = tiny(family), torch.zeros(1, 3, 32, 32)
    positions = 20 * images.position_grid(4, 4)
    window = crop_windows(resize_grid(positions, 44, 44), [(30, 12)], 4, 4)
    with torch.no_grad():
        at_positions, at_other_positions = images.patch_tokens(blank, positions), images.patch_tokens(blank, window)
    assert cycle_accuracy(at_positions, at_positions, at_positions).item() == 1
    assert cycle_accuracy(at_positions, at_positions, at_other_positions).item() <= 0.25


def test_tokens_after_a_block_are_that_blocks(tmp_path):
    folder, x = save_model("dinov2", tmp_path / "m"), frames(height=42, width=28)
    last, first = (load_image_model(ImageModelConfig(path=str(folder), layer=layer)) for layer in (None, 1))
    with torch.no_grad():
        result = last.model(x, output_hidden_states=True)
        torch.testing.assert_close(first.patch_tokens(x), result.hidden_states[1][:, 1:])
        torch.testing.assert_close(last.patch_tokens(x), result.last_hidden_state[:, 1:])


def test_mae_from_a_configuration_has_sines_and_cosines_for_positions():
    table = random_image_model(ImageModelConfig(family="mae", arch="tiny")).position_grid(4, 4)
    rate = 10000 ** (-1 / 8)
    assert table[2, 3, 1].item() == pytest.approx(math.sin(3 * rate), abs=1e-6)  # the column comes first
    assert table[2, 3, 16 + 8].item() == pytest.approx(math.cos(2), abs=1e-6)


def test_a_projected_model_is_a_backbone():
    images = tiny("dinov2")
    project = torch.nn.Linear(32, 32)
    backbone = images.with_projection(project)
    clip = torch.randn(2, 3, 3, 32, 24)
    with torch.no_grad():
        result, features = backbone.feature_map(clip), backbone(clip)
        expected = project(images.patch_tokens(clip[1, :, 2][None]))[0]
    torch.testing.assert_close(result[1, :, 2].flatten(1).T, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(features, result.mean((3, 4)).transpose(1, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: load_image_model(ImageModelConfig(path=str(p))), "has no config.json"),
        (lambda p: load_image_model(ImageModelConfig()), "No image model is given"),
        (lambda p: load_image_model(ImageModelConfig(path=str(save_model("bert", p / "b")))), "holds a bert"),
        (
            lambda p: load_image_model(ImageModelConfig(path=str(save_model("vit", p / "v")), family="dinov2")),
            "holds a vit",
        ),
        (lambda p: load_image_model(ImageModelConfig(family="dino", arch="tiny", layer=5)), "blocks 1 to 2"),
        (lambda p: tiny("dino").patch_tokens(frames(height=33)), "33×32 pixels; .* a multiple of 8"),
        (lambda p: tiny("dino").patch_tokens(frames(), torch.zeros(3, 4, 32)), r"expected \(4, 4, 32\)"),
    ],
)
def test_errors_say_what_to_do(tmp_path, make, message):
    with pytest.raises(StillmotionError, match=message):
        make(tmp_path)
