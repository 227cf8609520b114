import json
import sys

import pytest
import safetensors.torch
import torch
import transformers
from support.tiny_transformers import save_model

from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import CLIP_NORMALIZATION, IMAGENET_NORMALIZATION
from stillmotion.models.pretrained.transformers_backbone import load_transformers_backbone

VIDEO_MODELS = ("videomae", "vjepa2", "timesformer")
IMAGE_MODELS = ("dinov2", "vit", "vit_mae", "clip", "resnet", "swin")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    folders = {}

    def save_once(kind):
        if kind not in folders:
            folders[kind] = save_model(kind, root / kind)
        return folders[kind]

    return save_once


def clips(backbone, intake, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, intake.num_frames, intake.image_size, intake.image_size, generator=generator)


def with_other_patch(clip, frame, patch):
    """Return the clip with another patch in the second row and third column of one frame."""
    changed = clip.clone()
    changed[:, :, frame, patch : 2 * patch, 2 * patch : 3 * patch] += 1
    return changed


@pytest.mark.parametrize("kind", VIDEO_MODELS + IMAGE_MODELS)
def test_every_model_gives_one_feature_for_each_step_of_time(folder, kind):
    backbone, intake = load_transformers_backbone(folder(kind))
    clip = clips(backbone, intake)
    steps = intake.num_frames // backbone.tubelet_size
    with torch.no_grad():
        result = backbone(clip)
        features = backbone.feature_map(clip)
    assert result.shape == (2, steps, backbone.out_features)
    assert features.shape[:3] == (2, backbone.out_features, steps)
    assert backbone.stage_index(next(name for name, _ in backbone.named_parameters())) == 0
    assert not backbone.training
    if backbone.token_pool == "mean":
        torch.testing.assert_close(result, features.mean((3, 4)).transpose(1, 2))


@pytest.mark.parametrize("kind", VIDEO_MODELS)
def test_places_of_the_map_are_places_of_the_clip(folder, kind):
    backbone, intake = load_transformers_backbone(folder(kind), layer=0)  # patches before attention
    clip, frame = clips(backbone, intake), 5
    with torch.no_grad():
        change = (
            (backbone.feature_map(with_other_patch(clip, frame, 8)) - backbone.feature_map(clip)).abs().amax((0, 1))
        )
    assert change.shape == (8 // backbone.tubelet_size, 4, 4)
    assert (change > 1e-4).nonzero().tolist() == [[frame // backbone.tubelet_size, 1, 2]]


@pytest.mark.parametrize("kind", ["dinov2", "vit", "vit_mae", "clip"])
def test_frames_of_a_model_of_images_are_embedded_one_by_one(folder, kind):
    backbone, intake = load_transformers_backbone(folder(kind))
    clip = clips(backbone, intake)
    changed = clip.clone()
    changed[:, :, 5] += 1
    with torch.no_grad():
        difference = (backbone(changed) - backbone(clip)).abs().amax((0, 2)) > 1e-5
    assert difference.nonzero().flatten().tolist() == [5]


def test_the_class_token_and_the_patches_are_the_models_own(folder):
    model = transformers.Dinov2Model.from_pretrained(folder("dinov2")).eval()
    clip = torch.randn(1, 3, 4, 56, 42)
    with torch.no_grad():
        expected = model(clip[0].transpose(0, 1), output_hidden_states=True)
        for pool, tokens in (("cls", expected.last_hidden_state[:, 0]), ("mean", expected.last_hidden_state[:, 1:])):
            backbone, _ = load_transformers_backbone(folder("dinov2"), pool=pool)
            torch.testing.assert_close(backbone(clip)[0], tokens if pool == "cls" else tokens.mean(1))
        backbone, _ = load_transformers_backbone(folder("dinov2"), layer=1)
        torch.testing.assert_close(backbone(clip)[0], expected.hidden_states[1][:, 0])
        first = backbone.feature_map(clip)[0, :, 2]  # (D, 4, 3): rows and then columns
        torch.testing.assert_close(first.flatten(1).T, expected.hidden_states[1][2, 1:])


def test_video_models_give_their_own_patches(folder):
    clip = torch.randn(2, 3, 8, 32, 32)
    backbone, _ = load_transformers_backbone(folder("videomae"))
    with torch.no_grad():
        expected = backbone.model(clip.transpose(1, 2)).last_hidden_state
        torch.testing.assert_close(backbone(clip), expected.reshape(2, 4, 16, 32).mean(2))


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("vjepa2", (8, 64), "64×64; this vjepa2 model only supports 32×32"),
        ("videomae", (16, 32), "Clips have 16 frames; this videomae model needs exactly 8"),
        ("vjepa2", (7, 32), "at least 2, in multiples of 2"),
        ("vit", (8, 33), "in multiples of 8"),
    ],
)
def test_what_would_get_wrong_positions_is_refused(folder, kind, shape, message):
    backbone, _ = load_transformers_backbone(folder(kind))
    frames, size = shape
    with pytest.raises(StillmotionError, match=message):
        backbone(torch.zeros(1, 3, frames, size, size))


@pytest.mark.parametrize("kind", ["vit", "clip", "dinov2"])
def test_models_that_can_fit_their_positions_take_other_sizes(folder, kind):
    backbone, _ = load_transformers_backbone(folder(kind))
    size = 4 * backbone.patch_size + backbone.patch_size
    with torch.no_grad():
        assert backbone.feature_map(torch.randn(1, 3, 2, size, size)).shape[3:] == (5, 5)


def test_the_processor_sets_the_input_of_a_model(tmp_path):
    folder = save_model("dinov2", tmp_path / "m")
    _, intake = load_transformers_backbone(folder)
    assert (intake.image_size, intake.normalization) == (42, IMAGENET_NORMALIZATION)
    config = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}
    config |= {"size": {"shortest_edge": 70}, "crop_size": {"height": 56, "width": 56}, "do_center_crop": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(config))
    _, intake = load_transformers_backbone(folder)
    assert (intake.image_size, intake.normalization) == (56, ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1)))
    (folder / "preprocessor_config.json").write_text(json.dumps(config | {"do_center_crop": False}))
    assert load_transformers_backbone(folder)[1].image_size == 70


@pytest.mark.parametrize("kind", ["blip", "blip_caption", "blip_match", "blip_vision"])
def test_the_image_encoder_of_blip_is_loaded_from_any_of_its_folders(kind, tmp_path):
    backbone, intake = load_transformers_backbone(save_model(kind, tmp_path / "m"))
    weights = safetensors.torch.load_file(tmp_path / "m" / "model.safetensors")
    for name, value in backbone.model.state_dict().items():
        assert torch.equal(value, weights.get(f"vision_model.{name}", weights.get(name))), name
    assert (backbone.model_type, intake.normalization) == ("blip_vision_model", CLIP_NORMALIZATION)
    with torch.no_grad():
        assert backbone.feature_map(torch.randn(1, 3, 1, 40, 24)).shape == (1, 32, 1, 5, 3)


def test_all_tokens_of_clip_have_its_last_norm(folder):
    backbone, intake = load_transformers_backbone(folder("clip"), pool="cls")
    clip = clips(backbone, intake)
    with torch.no_grad():
        result = backbone.model(clip[:, :, 3])
        torch.testing.assert_close(backbone(clip)[:, 3], result.pooler_output)
        expected = backbone.model.post_layernorm(result.last_hidden_state[:, 1:])
        torch.testing.assert_close(backbone.feature_map(clip)[:, :, 3].flatten(2).transpose(1, 2), expected)
        bare, _ = load_transformers_backbone(folder("clip"), layer=2)
        torch.testing.assert_close(bare(clip)[:, 3], result.last_hidden_state[:, 0])


def test_without_a_processors_file_frames_are_normalised_as_the_family_does(folder, tmp_path):
    assert load_transformers_backbone(folder("clip"))[1].normalization == CLIP_NORMALIZATION
    assert load_transformers_backbone(folder("vit_mae"))[1].normalization == IMAGENET_NORMALIZATION
    model_dir = save_model("clip", tmp_path / "m")
    config = {"image_processor": {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}, "processor_class": "x"}
    (model_dir / "processor_config.json").write_text(json.dumps(config))
    assert load_transformers_backbone(model_dir)[1].normalization == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))


def test_names_that_the_model_does_not_know_are_listed_and_heads_are_left_behind(tmp_path):
    file = save_model("dinov2", tmp_path / "m") / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    safetensors.torch.save_file(weights | {"classifier.weight": torch.zeros(2)}, file, {"format": "pt"})
    load_transformers_backbone(tmp_path / "m")
    safetensors.torch.save_file(weights | {"encoder.layer.0.extra": torch.zeros(2)}, file, {"format": "pt"})
    with pytest.raises(StillmotionError, match=r"1 unexpected weights for a dinov2 model \(encoder\.layer\.0\.extra"):
        load_transformers_backbone(tmp_path / "m")


def test_weights_that_would_be_random_are_refused(tmp_path):
    folder = save_model("vit", tmp_path / "m")
    file = folder / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    name = next(name for name in weights if name.endswith("0.layernorm_before.weight"))
    remaining = {key: value for key, value in weights.items() if key != name}
    safetensors.torch.save_file(remaining, file, {"format": "pt"})
    with pytest.raises(StillmotionError, match=r"weights are missing \(.*layernorm_before"):
        load_transformers_backbone(folder)


def test_what_cannot_be_used_is_an_error(folder, tmp_path, monkeypatch):
    with pytest.raises(StillmotionError, match="holds a bert model"):
        load_transformers_backbone(folder("bert"))
    with pytest.raises(StillmotionError, match="layer is 3; this vit model has blocks 1 to 2"):
        load_transformers_backbone(folder("vit"), layer=3)
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    with pytest.raises(StillmotionError, match="cannot be loaded as a vit model"):
        load_transformers_backbone(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(StillmotionError, match="cannot be loaded as a unheard-of model"):
        load_transformers_backbone(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(StillmotionError, match=r"not installed\. Run: pip install 'stillmotion\[models\]'"):
        load_transformers_backbone(folder("vit"))
