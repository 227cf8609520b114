"""Every kind of encoder answers the same questions, by the same text, from Python and in a table."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import stillmotion
from stillmotion.data.halves import Halves
from stillmotion.data.videos import Videos
from stillmotion.encoders import ENCODERS, Encoder, load
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.embed import embed
from stillmotion.evaluate.options import Probing, Retrieval
from stillmotion.evaluate.probe import probe
from stillmotion.evaluate.retrieve import retrieve
from stillmotion.functional.motion import motion
from stillmotion.nn.families import FAMILIES

# Time steps, rows, columns and channels of the map of a clip as the encoder wants it.
MAPS = {
    "pretrain": (4, 4, 4, 8),
    "transfer": (8, 3, 3, 32),
    "finetune": (4, 2, 2, 32),
    "detect": (4, 4, 4, 32),  # its last stage is dilated
    "segment": (4, 4, 4, 8),
    "recipe": (8, 4, 4, 32),
    "transformers": (8, 3, 3, 32),
    "dino": (8, 4, 4, 64),
    "i3d": (3, 1, 1, 1024),
}
VERBS = ("pretrain", "transfer", "finetune", "detect", "segment")
# What stands for an encoder with stages, and how many channels come out of the first.
STAGED = {"pretrain": 4, "finetune": 8, "detect": 8, "segment": 4, "recipe": 8, "i3d": 64}


def clip(encoder: Encoder) -> torch.Tensor:
    shown = encoder.intake
    return torch.randn(2, 3, shown.frames, shown.size, shown.size, generator=torch.Generator().manual_seed(0))


def with_option(text: str, option: str) -> str:
    return f"{text}{',' if '@' in text else '@'}{option}"


def refused(text: str, message: str) -> None:
    with pytest.raises(StillmotionError, match=message):
        asked(text)


def asked(text: str) -> None:
    encoder = load(text)
    with torch.no_grad():
        encoder(clip(encoder))


@pytest.mark.parametrize("kind", MAPS)
def test_embed_gives_the_rows_that_the_table_holds(texts, folder, tmp_path, kind):
    encoder = stillmotion.load(texts[kind])
    assert (encoder.origin.kind, encoder.origin.text) == (kind, texts[kind])
    out = embed(encoder, Videos(folder), tmp_path / "table.npz", clips=2, say=lambda line: None)
    with np.load(out) as table:
        assert len(table["path"]) == 6
        for i, path in enumerate(table["path"].tolist()):
            found = encoder.embed([path], clips=2)
            for name in ("whole", "static", "dynamic"):
                (row,) = getattr(found, name)
                assert (row.dtype, row.shape) == (np.float32, (MAPS[kind][-1],))
                np.testing.assert_allclose(row, table[name][i], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", MAPS)
def test_maps_have_a_feature_for_every_place(texts, kind):
    encoder = load(texts[kind])
    clips = clip(encoder)
    with torch.no_grad():
        maps, found = encoder.maps(clips), encoder(clips)
    assert maps.shape == (2, *MAPS[kind])
    assert found.frames.shape == (2, MAPS[kind][0], MAPS[kind][-1])
    torch.testing.assert_close(found.whole, found.frames.mean(1))
    if kind not in ("transformers", "dino"):  # whose features are class tokens
        torch.testing.assert_close(found.frames, maps.mean((2, 3)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", MAPS)
def test_motion_is_of_matches_where_frames_are_seen_one_by_one(texts, kind):
    encoder = load(texts[kind])
    clips = clip(encoder)
    with torch.no_grad():
        found, maps = encoder(clips), encoder.maps(clips)
    matched = kind in ("transfer", "transformers", "dino")
    torch.testing.assert_close(found.motion, motion(maps) if matched else found.dynamic, atol=1e-4, rtol=1e-3)


def test_every_kind_of_ours_is_asked_here():
    others = {*FAMILIES, "hub", "flow"}  # which test_original_checkpoints.py, test_hub.py and test_flow_encoder.py have
    assert {*MAPS, *others} == set(ENCODERS.own)


def test_a_video_is_shown_to_a_model_of_images_as_a_few_small_frames(texts):
    survey = load(texts["dino"]).survey  # which has patches of 8 pixels, and 4×4 of them
    assert (survey.frames, survey.stride, survey.size, survey.width, survey.entire) == (16, 0, 32, 40, True)
    assert load(f"{texts['dino']}@size=24").survey.width == 0  # a size that is asked for is of squares
    assert load(texts["pretrain"]).survey == load(texts["pretrain"]).intake


@pytest.mark.parametrize("kind", MAPS)
def test_clips_are_as_the_text_asks(texts, folder, kind):
    wanted = {"frames": 32 if kind == "i3d" else 9, "stride": 2, "size": 56}
    encoder = load(with_option(texts[kind], ",".join(f"{name}={value}" for name, value in wanted.items())))
    assert encoder.intake == replace(load(texts[kind]).intake, **wanted)
    assert encoder.origin.options == wanted
    assert load(encoder.origin.text).intake == encoder.intake
    (row,) = encoder.embed([folder / "dark" / "0.mp4"], clips=1).whole
    (usual,) = load(texts[kind]).embed([folder / "dark" / "0.mp4"], clips=1).whole
    assert row.shape == usual.shape
    assert not np.allclose(row, usual, rtol=1e-3)


@pytest.mark.parametrize("kind", STAGED)
def test_a_layer_is_a_stage_of_our_networks_and_of_i3d(texts, kind):
    encoder = load(with_option(texts[kind], "layer=1"))
    clips = clip(encoder)
    with torch.no_grad():
        maps, frames = encoder.maps(clips), encoder(clips).frames
    assert maps.shape[-1] == frames.shape[-1] == STAGED[kind]
    torch.testing.assert_close(frames, maps.mean((2, 3)), atol=1e-4, rtol=1e-4)
    refused(with_option(texts[kind], "layer=0"), "layer is 0; this network has .* stages")
    refused(with_option(texts[kind], "layer=9"), "layer is 9; this network has .* stages")


@pytest.mark.parametrize("kind", ["transformers", "dino"])
def test_a_layer_is_a_block_of_a_transformer_and_a_pool_is_its_tokens(texts, kind):
    encoder = load(texts[kind])
    clips = clip(encoder)
    seen = clips.transpose(1, 2).flatten(0, 1)
    with torch.no_grad():
        wanted = encoder.backbone.model(seen, output_hidden_states=True)
        tokens = {"": wanted.last_hidden_state, "layer=1": wanted.hidden_states[1]}
        for option, of_block in tokens.items():
            for pool, row in (("class", of_block[:, 0]), ("patches", of_block[:, 1:].mean(1))):
                asked = ",".join(filter(None, (option, f"pool={pool}")))
                found = load(with_option(texts[kind], asked))(clips).frames
                torch.testing.assert_close(found, row.unflatten(0, (2, -1)), atol=1e-4, rtol=1e-4)
            maps = load(with_option(texts[kind], option) if option else texts[kind]).maps(clips)
            torch.testing.assert_close(maps.flatten(0, 1).flatten(1, 2), of_block[:, 1:], atol=1e-4, rtol=1e-4)
    refused(with_option(texts[kind], "layer=3"), "layer is 3; this .* has blocks 1 to 2")


@pytest.mark.parametrize("kind", [*STAGED, "transfer"])
def test_what_a_kind_does_not_take_is_refused(texts, kind):
    refused(
        with_option(texts[kind], "pool=class"),
        "has no option 'pool'; it is for image models" if kind != "transfer" else "no class token",
    )
    refused(with_option(texts[kind], "heads=2"), "'heads=2' in .* is no option of an encoder")
    if kind == "transfer":
        refused(with_option(texts[kind], "layer=1"), "has no option 'layer'")


@pytest.mark.parametrize("kind", VERBS)
def test_results_and_features_lie_in_the_folder_of_the_run(texts, folder, tmp_path, kind):
    run = Path(shutil.copytree(texts[kind], tmp_path / "run"))
    before = {file.name for file in (run / "features").iterdir()} if (run / "features").exists() else set()
    first, again = (retrieve([load(run)], Halves(folder), Retrieval(clips=1))["run"] for _ in range(2))
    assert (first["reused"], again["reused"], first["run"]) == (False, True, str(run))
    assert (run / "retrieve.json").exists()
    assert len({file.name for file in (run / "features").iterdir()} - before) == 1
    probe(load(run), Halves(folder), Probing(clips=1), kinds=("whole",))
    assert (run / "probe.json").exists()


@pytest.mark.parametrize("kind", ["recipe", "transformers", "dino", "i3d"])
def test_what_is_no_run_has_no_folder_to_write_to(texts, folder, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder = load(texts[kind])
    (found,) = retrieve([encoder], Halves(folder), Retrieval(clips=1)).values()
    assert encoder.folder is None
    assert not found["reused"]
    assert not list(tmp_path.iterdir())


def test_several_videos_give_a_row_each_and_a_torn_one_is_an_error(texts, folder, tmp_path):
    encoder = load(texts["pretrain"])
    paths = sorted(folder.glob("*/*.mp4"))
    found = encoder.embed(paths, crops=3)
    assert found.whole.shape == found.static.shape == found.dynamic.shape == (6, 8)
    assert len(found.motion) == 6
    (tmp_path / "torn.mp4").write_bytes(b"torn")
    for videos in ([*paths, tmp_path / "torn.mp4"], [tmp_path / "torn.mp4"]):
        with pytest.raises(VideoError, match=r"torn\.mp4"):
            encoder.embed(videos)


def test_only_what_was_trained_here_from_nothing_has_an_untrained_twin(texts):
    for kind in ("pretrain", "recipe"):
        twin = load(texts[kind]).untrained()
        assert twin.origin.kind == kind
    for kind in MAPS.keys() - {"pretrain", "recipe"}:
        with pytest.raises(StillmotionError, match="trained elsewhere"):
            load(texts[kind]).untrained()
