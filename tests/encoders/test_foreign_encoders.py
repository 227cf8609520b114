import numpy as np
import pytest
import safetensors.torch
import torch
from debug_videos import write_classes
from tiny_models import save_model

from stillmotion.data.augment import normalise
from stillmotion.data.halves import Halves
from stillmotion.data.sets import FolderSet
from stillmotion.data.videos import Videos
from stillmotion.encoders import extract, full_text, load, read_text
from stillmotion.encoders.kinds import Named
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.embed import embed
from stillmotion.evaluate.options import Probing
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
    assert read_text(run) == read_text(f"pretrain:{run}") == Named("pretrain", str(run))
    assert read_text("laptop@frames=4,stride=2") == Named("recipe", "laptop", {"frames": 4, "stride": 2})
    assert read_text(dinov2) == Named("transformers", str(dinov2))
    wanted = {"size": 56, "pool": "patches", "layer": 0}
    assert read_text(f"{dinov2}@size=56,pool=patches,layer=0") == Named("transformers", str(dinov2), wanted)
    assert read_text(f"i3d:{i3d}@frames=32") == Named("i3d", str(i3d), {"frames": 32})
    assert read_text(i3d) == Named("i3d", str(i3d))


def test_a_full_text_names_the_same_encoder_from_any_folder(run, dinov2, i3d, tmp_path, monkeypatch):
    monkeypatch.chdir(i3d.parent)
    assert full_text(f"{i3d.name}@frames=32") == f"i3d:{i3d}@frames=32"
    monkeypatch.chdir(dinov2.parent)
    assert full_text(f"{dinov2.name}@size=56,layer=1") == f"{dinov2}@size=56,layer=1"
    monkeypatch.chdir(tmp_path)
    assert full_text("run") == str(run)
    (tmp_path / "laptop").mkdir()
    assert full_text("laptop@size=64") == "laptop@size=64"


def test_a_network_from_elsewhere_sees_pixels_in_its_own_normalisation(dinov2):
    encoder = load(dinov2)
    pixels = np.random.default_rng(0).integers(0, 256, (8, 42, 42, 3), np.uint8)
    own = normalise(pixels, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        found = encoder(normalise(pixels, *encoder.intake.normalisation)[None])
        wanted = encoder.backbone(own[None])
    torch.testing.assert_close(found.frames, wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.whole, wanted.mean(1), atol=1e-4, rtol=1e-4)
    assert found.static.shape == found.dynamic.shape == (1, 32)
    assert (encoder.intake.frames, encoder.intake.size) == (8, 42)
    assert encoder.split.how == "slow"


def test_options_change_what_an_encoder_is_shown(run, dinov2):
    for text in (f"{run}@frames=4,stride=1,size=16", f"{dinov2}@frames=4,stride=1,size=28"):
        encoder = load(text)
        shown = encoder.intake
        assert (shown.frames, shown.stride) == (4, 1)
        assert not encoder.training
        with torch.no_grad():
            assert encoder(torch.randn(1, 3, 4, shown.size, shown.size)).frames.shape[1] == 4


def test_i3d_has_the_strides_the_borders_and_the_values_it_was_trained_with(i3d):
    encoder = load(f"i3d:{i3d}@frames=24,size=32")
    shown = load(i3d).intake
    assert (shown.frames, shown.stride, shown.size) == (64, 1, 224)
    network = create_backbone("i3d", keep_time=False, border="zeros").eval()
    weights = safetensors.torch.load_file(i3d)
    network.load_state_dict({name: weights[name].float() for name in network.state_dict()})
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), np.uint8)
    with torch.no_grad():
        found = encoder(normalise(pixels, *encoder.intake.normalisation)[None]).frames
        wanted = network(torch.from_numpy(pixels).permute(3, 0, 1, 2)[None] / 127.5 - 1)
    assert found.shape == (1, 3, 1024)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=1e-3)


def test_a_model_is_probed_and_embeds_and_its_folder_stays_as_it_was(dinov2, tmp_path):
    folder = write_classes(tmp_path / "set", videos=6)
    before = sorted(path.name for path in dinov2.iterdir())
    text = f"{dinov2}@frames=4,stride=2"
    encoder = load(text)
    found = probe(encoder, Halves(folder), Probing(clips=1), kinds=("whole",))
    assert found["accuracy"]["trained"]["whole"]["class"]["top1"] == 1.0
    out = embed(encoder, Videos(folder), tmp_path / "t.npz", clips=1, say=lambda line: None)
    wanted = extract(encoder, FolderSet(folder), clips=1).vector("whole")
    with np.load(out) as table:
        np.testing.assert_allclose(table["whole"], wanted, atol=1e-5)
    assert sorted(path.name for path in dinov2.iterdir()) == before
    with pytest.raises(StillmotionError, match=r"trained elsewhere.*leave --untrained out"):
        probe(encoder, Halves(folder), Probing(untrained=True))


def test_what_is_no_encoder_is_said(run, dinov2, tmp_path):
    (tmp_path / "notes.txt").write_text("notes")
    for text, message in {
        str(tmp_path / "nowhere"): "neither a folder nor a recipe; give a run folder of any training verb",
        str(tmp_path): "is no encoder",
        str(tmp_path / "notes.txt"): "is no encoder",
        "i3d:nowhere.safetensors": "there is no file nowhere.safetensors",
        f"i3d:{tmp_path / 'notes.txt'}": "not a readable checkpoint|damaged",
        f"{dinov2}@frames=few": "'frames=few' in .* is no option of an encoder; write frames=<number>",
        f"{dinov2}@frames=0": "no option of an encoder",
        f"{run}@pool=class": "has no option 'pool'; it is for image models",
    }.items():
        with pytest.raises(StillmotionError, match=message):
            load(text)
