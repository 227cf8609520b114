import numpy as np
import pytest
import safetensors.torch
import torch
from support.tiny_transformers import save_model

from stillmotion.data.transforms.augment import normalize_clip
from stillmotion.encoders import canonical_spec, load, parse_spec
from stillmotion.encoders.spec import EncoderSpec
from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return save_model("dinov2", tmp_path_factory.mktemp("models") / "dino@v2")


@pytest.fixture(scope="module")
def i3d(tmp_path_factory):
    torch.manual_seed(0)
    network = create_backbone("i3d", num_classes=4)
    file = tmp_path_factory.mktemp("models") / "i3d.safetensors"
    safetensors.torch.save_file({name: value.half() for name, value in network.state_dict().items()}, file)
    return file


def test_a_text_names_a_run_a_recipe_or_a_model_and_its_options(run, dinov2, i3d):
    assert parse_spec(run) == parse_spec(f"pretrain:{run}") == EncoderSpec("pretrain", str(run))
    assert parse_spec("laptop@frames=4,stride=2") == EncoderSpec("recipe", "laptop", {"frames": 4, "stride": 2})
    assert parse_spec(dinov2) == EncoderSpec("transformers", str(dinov2))
    expected = {"size": 56, "pool": "mean", "layer": 0}
    assert parse_spec(f"{dinov2}@size=56,pool=mean,layer=0") == EncoderSpec("transformers", str(dinov2), expected)
    assert parse_spec(f"i3d:{i3d}@frames=32") == EncoderSpec("i3d", str(i3d), {"frames": 32})
    assert parse_spec(i3d) == EncoderSpec("i3d", str(i3d))


def test_a_full_text_names_the_same_encoder_from_any_folder(run, dinov2, i3d, tmp_path, monkeypatch):
    monkeypatch.chdir(i3d.parent)
    assert canonical_spec(f"{i3d.name}@frames=32") == f"i3d:{i3d}@frames=32"
    monkeypatch.chdir(dinov2.parent)
    assert canonical_spec(f"{dinov2.name}@size=56,layer=1") == f"{dinov2}@size=56,layer=1"
    monkeypatch.chdir(tmp_path)
    assert canonical_spec("run") == str(run)
    (tmp_path / "laptop").mkdir()
    assert canonical_spec("laptop@size=64") == "laptop@size=64"


def test_a_network_from_elsewhere_sees_pixels_in_its_own_normalisation(dinov2):
    encoder = load(dinov2)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 42, 42, 3), np.uint8)
    normalized = normalize_clip(pixels, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        result = encoder(normalize_clip(pixels, *encoder.input_config.normalization)[None])
        expected = encoder.backbone(normalized[None])
    torch.testing.assert_close(result.frames, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(result.whole, expected.mean(1), atol=1e-4, rtol=1e-4)
    assert result.static.shape == result.dynamic.shape == (1, 32)
    assert (encoder.input_config.num_frames, encoder.input_config.image_size) == (8, 42)
    assert encoder.static_dynamic.method == "slow"


def test_i3d_has_the_strides_the_borders_and_the_values_it_was_trained_with(i3d):
    encoder = load(f"i3d:{i3d}@frames=24,size=32")
    config = load(i3d).input_config
    assert (config.num_frames, config.stride, config.image_size) == (64, 1, 224)
    network = create_backbone("i3d", per_frame_features=False, temporal_padding="zeros").eval()
    weights = safetensors.torch.load_file(i3d)
    network.load_state_dict({name: weights[name].float() for name in network.state_dict()})
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    with torch.no_grad():
        result = encoder(normalize_clip(pixels, *encoder.input_config.normalization)[None]).frames
        expected = network(torch.from_numpy(pixels).permute(3, 0, 1, 2)[None] / 127.5 - 1)
    assert result.shape == (1, 3, 1024)
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-3)


def test_what_is_no_encoder_is_an_error(run, dinov2, tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    for text, message in {
        str(tmp_path / "nowhere"): "Unknown encoder .* Give one of: a run folder of any training verb",
        str(tmp_path): "is not an encoder",
        str(tmp_path / "notes.txt"): "is not an encoder",
        "i3d:nowhere.safetensors": "nowhere.safetensors does not exist",
        f"i3d:{tmp_path / 'notes.txt'}": "not a readable checkpoint|damaged",
        f"{dinov2}@frames=few": "Unknown option 'frames=few' in .* Options are frames=NUMBER",
        f"{dinov2}@frames=0": "Unknown option",
    }.items():
        with pytest.raises(StillmotionError, match=message):
            load(text)
