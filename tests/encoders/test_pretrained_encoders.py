import numpy as np
import pytest
import safetensors.torch
import torch
from support.class_videos import write_class_folders
from support.tiny_transformers import save_model

from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.transforms.augment import normalize_clip
from stillmotion.encoders import canonical_spec, extract_features, load, parse_spec
from stillmotion.encoders.embedding_export import export_embeddings
from stillmotion.encoders.spec import EncoderSpec
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
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
    wanted = {"size": 56, "pool": "mean", "layer": 0}
    assert parse_spec(f"{dinov2}@size=56,pool=mean,layer=0") == EncoderSpec("transformers", str(dinov2), wanted)
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
    own = normalize_clip(pixels, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        found = encoder(normalize_clip(pixels, *encoder.input_config.normalization)[None])
        wanted = encoder.backbone(own[None])
    torch.testing.assert_close(found.frames, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.whole, wanted.mean(1), atol=1e-4, rtol=1e-4)
    assert found.static.shape == found.dynamic.shape == (1, 32)
    assert (encoder.input_config.num_frames, encoder.input_config.image_size) == (8, 42)
    assert encoder.static_dynamic.method == "slow"


def test_options_change_what_an_encoder_is_shown(run, dinov2):
    for text in (f"{run}@frames=4,stride=1,size=16", f"{dinov2}@frames=4,stride=1,size=28"):
        encoder = load(text)
        shown = encoder.input_config
        assert (shown.num_frames, shown.stride) == (4, 1)
        assert not encoder.training
        with torch.no_grad():
            assert encoder(torch.randn(1, 3, 4, shown.image_size, shown.image_size)).frames.shape[1] == 4


def test_i3d_has_the_strides_the_borders_and_the_values_it_was_trained_with(i3d):
    encoder = load(f"i3d:{i3d}@frames=24,size=32")
    shown = load(i3d).input_config
    assert (shown.num_frames, shown.stride, shown.image_size) == (64, 1, 224)
    network = create_backbone("i3d", per_frame_features=False, temporal_padding="zeros").eval()
    weights = safetensors.torch.load_file(i3d)
    network.load_state_dict({name: weights[name].float() for name in network.state_dict()})
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    with torch.no_grad():
        found = encoder(normalize_clip(pixels, *encoder.input_config.normalization)[None]).frames
        wanted = network(torch.from_numpy(pixels).permute(3, 0, 1, 2)[None] / 127.5 - 1)
    assert found.shape == (1, 3, 1024)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def test_a_model_is_probed_and_embeds_and_its_folder_stays_as_it_was(dinov2, tmp_path):
    folder = write_class_folders(tmp_path / "set", videos_per_class=6)
    before = sorted(path.name for path in dinov2.iterdir())
    text = f"{dinov2}@frames=4,stride=2"
    encoder = load(text)
    found = evaluate_linear_probe(
        encoder, TrainTestConfig(folder), LinearProbeConfig(num_clips=1), feature_kinds=("whole",)
    )
    assert found.accuracy["pretrained"]["whole"]["class"]["top1"] == 1.0
    out = export_embeddings(encoder, VideoDataConfig(folder), tmp_path / "t.npz", num_clips=1)
    wanted = extract_features(encoder, VideoFolder(folder), num_clips=1).vectors("whole")
    with np.load(out.file) as table:
        np.testing.assert_allclose(table["whole"], wanted, atol=1e-5)
    assert sorted(path.name for path in dinov2.iterdir()) == before
    with pytest.raises(StillmotionError, match=r"no known initial weights\. Omit --compare-untrained"):
        evaluate_linear_probe(encoder, TrainTestConfig(folder), LinearProbeConfig(compare_untrained=True))


def test_what_is_no_encoder_is_said(run, dinov2, tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    for text, message in {
        str(tmp_path / "nowhere"): "Unknown encoder .* Give one of: a run folder of any training verb",
        str(tmp_path): "is not an encoder",
        str(tmp_path / "notes.txt"): "is not an encoder",
        "i3d:nowhere.safetensors": "nowhere.safetensors does not exist",
        f"i3d:{tmp_path / 'notes.txt'}": "not a readable checkpoint|damaged",
        f"{dinov2}@frames=few": "Unknown option 'frames=few' in .* Options are frames=NUMBER",
        f"{dinov2}@frames=0": "Unknown option",
        f"{run}@pool=cls": "Option 'pool' does not apply to .*; it is for image models",
    }.items():
        with pytest.raises(StillmotionError, match=message):
            load(text)
