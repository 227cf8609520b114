import numpy as np
import pytest
import safetensors.torch
import torch
from debug_videos import write_classes
from tiny_models import save_model

from stillmotion.data.augment import augment, normalise
from stillmotion.data.sets import FolderSet
from stillmotion.encoders.features import extract
from stillmotion.encoders.load import Spec, load_encoder, read_spec
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.embed import embed
from stillmotion.evaluate.probe import probe
from stillmotion.nn.backbones import create_backbone


@pytest.fixture(scope="module")
def dinov2(tmp_path_factory):
    return save_model("dinov2", tmp_path_factory.mktemp("models") / "dino@v2")


@pytest.fixture(scope="module")
def i3d(tmp_path_factory):
    torch.manual_seed(0)
    network = create_backbone("i3d", classes=4)
    file = tmp_path_factory.mktemp("models") / "i3d.safetensors"
    safetensors.torch.save_file({name: value.half() for name, value in network.state_dict().items()}, file)
    return file


def test_a_text_names_a_run_a_recipe_or_a_model_and_its_options(run, dinov2, i3d):
    assert read_spec(run) == Spec("run", str(run), {})
    assert read_spec("laptop@frames=4,stride=2") == Spec("recipe", "laptop", {"frames": 4, "stride": 2})
    assert read_spec(dinov2) == Spec("transformers", str(dinov2), {})
    wanted = {"size": 56, "pool": "patches", "layer": 0}
    assert read_spec(f"{dinov2}@size=56,pool=patches,layer=0") == Spec("transformers", str(dinov2), wanted)
    assert read_spec(f"i3d:{i3d}@frames=32") == Spec("i3d", str(i3d), {"frames": 32})
    assert read_spec(i3d) == Spec("i3d", str(i3d), {})


def test_a_network_from_elsewhere_sees_pixels_in_its_own_normalisation(dinov2):
    encoder, config = load_encoder(dinov2)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 42, 42, 3), np.uint8)
    given = augment(config.data.augment, size=42)
    own = normalise(pixels, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        found = encoder(normalise(pixels, given.mean, given.std)[None])
        wanted = encoder.backbone.backbone(own[None])
    torch.testing.assert_close(found.frames, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.whole, wanted.mean(1), atol=1e-4, rtol=1e-4)
    assert found.static.shape == found.dynamic.shape == (1, 32)
    assert (config.data.frames, config.data.size) == (8, 42)
    assert config.method.split == encoder.split


def test_options_change_what_an_encoder_is_shown(run, dinov2):
    for text in (f"{run}@frames=4,stride=1,size=16", f"{dinov2}@frames=4,stride=1,size=28"):
        encoder, config = load_encoder(text)
        assert (config.data.frames, config.data.stride) == (4, 1)
        assert not encoder.training
        with torch.no_grad():
            assert encoder(torch.randn(1, 3, 4, config.data.size, config.data.size)).frames.shape[1] == 4


def test_i3d_has_the_strides_and_the_values_it_was_trained_with(i3d):
    encoder, config = load_encoder(f"i3d:{i3d}@frames=24,size=32")
    data = load_encoder(i3d)[1].data
    assert (data.frames, data.stride, data.size) == (64, 1, 224)
    network = create_backbone("i3d", keep_time=False).eval()
    weights = safetensors.torch.load_file(i3d)
    network.load_state_dict({name: weights[name].float() for name in network.state_dict()})
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    given = augment(config.data.augment, size=32)
    with torch.no_grad():
        found = encoder(normalise(pixels, given.mean, given.std)[None]).frames
        wanted = network(torch.from_numpy(pixels).permute(3, 0, 1, 2)[None] / 127.5 - 1)
    assert found.shape == (1, 3, 1024)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def test_a_model_is_probed_and_embeds_and_its_folder_stays_as_it_was(dinov2, tmp_path):
    folder = write_classes(tmp_path / "set", videos=6)
    before = sorted(path.name for path in dinov2.iterdir())
    text = f"{dinov2}@frames=4,stride=2"
    found = probe(text, str(folder), clips=1, kinds=("whole",))
    assert found["accuracy"]["trained"]["whole"]["class"]["top1"] == 1.0
    out = embed(text, str(folder), tmp_path / "t.npz", clips=1, say=lambda line: None)
    encoder, config = load_encoder(text)
    wanted = extract(encoder, FolderSet(folder), config.data, clips=1).vector("whole")
    with np.load(out) as table:
        np.testing.assert_allclose(table["whole"], wanted, atol=1e-5)
    assert sorted(path.name for path in dinov2.iterdir()) == before
    with pytest.raises(StillmotionError, match=r"trained elsewhere.*leave --untrained out"):
        probe(text, str(folder), untrained_too=True)


def test_what_is_no_encoder_is_said(run, dinov2, tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    for text, message in {
        str(tmp_path / "nowhere"): "neither a run folder nor a recipe, nor a model's folder",
        str(tmp_path): "no config",
        str(tmp_path / "notes.txt"): "is a file, but not of I3D's weights",
        "i3d:nowhere.safetensors": "there is no file nowhere.safetensors",
        f"i3d:{tmp_path / 'notes.txt'}": "not a readable checkpoint|damaged",
        f"{dinov2}@frames=few": "'frames=few' in .* is no option of an encoder; write frames=<number>",
        f"{dinov2}@frames=0": "no option of an encoder",
        f"{run}@layer=2": "has no option 'layer'; it is for transformers models",
    }.items():
        with pytest.raises(StillmotionError, match=message):
            load_encoder(text)
