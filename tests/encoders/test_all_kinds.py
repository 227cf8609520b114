"""Every kind of encoder answers the same questions, by the same text, from Python and in a table."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import stillmotion
from stillmotion.data.datasets.config import VideoDataConfig
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.encoders import ENCODER_KINDS, Encoder, load
from stillmotion.encoders.embedding_export import export_embeddings
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluation.linear_probe.config import LinearProbeConfig
from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe
from stillmotion.evaluation.retrieval.config import RetrievalConfig
from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval
from stillmotion.functional.token_motion import motion_embedding
from stillmotion.models.pretrained.checkpoint_families import CHECKPOINT_FAMILIES
from stillmotion.models.pretrained.video_checkpoints import VIDEO_CHECKPOINTS

# Time steps, rows, columns and channels of the map of a clip as the encoder wants it.
MAPS = {
    "pretrain": (4, 4, 4, 8),
    "transfer": (8, 3, 3, 32),
    "finetune": (4, 2, 2, 32),
    "detect": (4, 4, 4, 32),  # its last stage is dilated
    "segment": (4, 4, 4, 8),
    "recipe": (8, 4, 4, 32),
    "transformers": (8, 3, 3, 32),
    "dino": (8, 4, 4, 128),
    "i3d": (3, 1, 1, 1024),
}
VERBS = ("pretrain", "transfer", "finetune", "detect", "segment")
# What stands for an encoder with stages, and how many channels come out of the first.
STAGED = {"pretrain": 4, "finetune": 8, "detect": 8, "segment": 4, "recipe": 8, "i3d": 64}


def clip(encoder: Encoder) -> torch.Tensor:
    shown = encoder.input_config
    return torch.randn(
        2, 3, shown.num_frames, shown.image_size, shown.image_size, generator=torch.Generator().manual_seed(0)
    )


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
def test_embed_gives_the_rows_that_the_table_holds(encoder_specs, class_videos, tmp_path, kind):
    encoder = stillmotion.load(encoder_specs[kind])
    assert (encoder.origin.kind, encoder.origin.spec) == (kind, encoder_specs[kind])
    out = export_embeddings(encoder, VideoDataConfig(class_videos), tmp_path / "table.npz", num_clips=2)
    with np.load(out.file) as table:
        assert len(table["path"]) == 6
        for i, path in enumerate(table["path"].tolist()):
            found = encoder.embed([path], num_clips=2)
            for name in ("whole", "static", "dynamic"):
                (row,) = getattr(found, name)
                assert (row.dtype, row.shape) == (np.float32, (MAPS[kind][-1],))
                np.testing.assert_allclose(row, table[name][i], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", MAPS)
def test_maps_have_a_feature_for_every_place(encoder_specs, kind):
    encoder = load(encoder_specs[kind])
    clips = clip(encoder)
    with torch.no_grad():
        maps, found = encoder.feature_maps(clips), encoder(clips)
    assert maps.shape == (2, *MAPS[kind])
    assert found.frames.shape == (2, MAPS[kind][0], MAPS[kind][-1])
    torch.testing.assert_close(found.whole, found.frames.mean(1))
    if kind not in ("transformers", "dino"):  # whose features are class tokens
        torch.testing.assert_close(found.frames, maps.mean((2, 3)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", MAPS)
def test_motion_is_of_matches_where_frames_are_seen_one_by_one(encoder_specs, kind):
    encoder = load(encoder_specs[kind])
    clips = clip(encoder)
    with torch.no_grad():
        found, maps = encoder(clips), encoder.feature_maps(clips)
    matched = kind in ("transfer", "transformers", "dino")
    torch.testing.assert_close(found.motion, motion_embedding(maps) if matched else found.dynamic, atol=1e-4, rtol=1e-3)


def test_every_kind_of_ours_is_asked_here():
    # Tests of original checkpoints, video checkpoints, the hub and color flow have these.
    others = {*CHECKPOINT_FAMILIES, *VIDEO_CHECKPOINTS, "hub", "flow"}
    assert {*MAPS, *others} == set(ENCODER_KINDS.builtin)


def test_a_video_is_shown_to_a_model_of_images_as_a_few_small_frames(encoder_specs):
    survey = load(encoder_specs["dino"]).eval_input  # which has patches of 8 pixels, and 4×4 of them
    assert (survey.num_frames, survey.stride, survey.whole_frame) == (16, 0, True)
    assert (survey.image_size, survey.frame_width) == (32, 40)
    # A size that a spec sets is of squares.
    assert load(f"{encoder_specs['dino']}@size=24").eval_input.frame_width == 0
    assert load(encoder_specs["pretrain"]).eval_input == load(encoder_specs["pretrain"]).input_config


@pytest.mark.parametrize("kind", MAPS)
def test_clips_are_as_the_text_asks(encoder_specs, class_videos, kind):
    options = {"frames": 32 if kind == "i3d" else 9, "stride": 2, "size": 56}
    encoder = load(with_option(encoder_specs[kind], ",".join(f"{name}={value}" for name, value in options.items())))
    fields = {"num_frames": options["frames"], "stride": 2, "image_size": 56}
    assert encoder.input_config == replace(load(encoder_specs[kind]).input_config, **fields)
    assert encoder.origin.options == options
    assert load(encoder.origin.spec).input_config == encoder.input_config
    (row,) = encoder.embed([class_videos / "dark" / "0.mp4"], num_clips=1).whole
    (usual,) = load(encoder_specs[kind]).embed([class_videos / "dark" / "0.mp4"], num_clips=1).whole
    assert row.shape == usual.shape
    assert not np.allclose(row, usual, rtol=1e-3)


@pytest.mark.parametrize("kind", STAGED)
def test_a_layer_is_a_stage_of_our_networks_and_of_i3d(encoder_specs, kind):
    encoder = load(with_option(encoder_specs[kind], "layer=1"))
    clips = clip(encoder)
    with torch.no_grad():
        maps, frames = encoder.feature_maps(clips), encoder(clips).frames
    assert maps.shape[-1] == frames.shape[-1] == STAGED[kind]
    torch.testing.assert_close(frames, maps.mean((2, 3)), atol=1e-4, rtol=1e-4)
    refused(with_option(encoder_specs[kind], "layer=0"), "layer is 0; must be between 1 and the number of stages")
    refused(with_option(encoder_specs[kind], "layer=9"), "layer is 9; must be between 1 and the number of stages")


@pytest.mark.parametrize("kind", ["transformers", "dino"])
def test_a_layer_is_a_block_of_a_transformer_and_a_pool_is_its_tokens(encoder_specs, kind):
    encoder = load(encoder_specs[kind])
    clips = clip(encoder)
    seen = clips.transpose(1, 2).flatten(0, 1)
    with torch.no_grad():
        wanted = encoder.backbone.model(seen, output_hidden_states=True)
        tokens = {"": wanted.last_hidden_state, "layer=1": wanted.hidden_states[1]}
        for option, of_block in tokens.items():
            for pool, row in (("cls", of_block[:, 0]), ("mean", of_block[:, 1:].mean(1))):
                asked = ",".join(filter(None, (option, f"pool={pool}")))
                found = load(with_option(encoder_specs[kind], asked))(clips).frames
                torch.testing.assert_close(found, row.unflatten(0, (2, -1)), atol=1e-4, rtol=1e-4)
            maps = load(with_option(encoder_specs[kind], option) if option else encoder_specs[kind]).feature_maps(clips)
            torch.testing.assert_close(maps.flatten(0, 1).flatten(1, 2), of_block[:, 1:], atol=1e-4, rtol=1e-4)
    refused(with_option(encoder_specs[kind], "layer=3"), "layer is 3; this .* has blocks 1 to 2")


@pytest.mark.parametrize("kind", [*STAGED, "transfer"])
def test_what_a_kind_does_not_take_is_refused(encoder_specs, kind):
    refused(
        with_option(encoder_specs[kind], "pool=cls"),
        "Option 'pool' does not apply to .*; it is for image models" if kind != "transfer" else "no class token",
    )
    refused(with_option(encoder_specs[kind], "heads=2"), "Unknown option 'heads=2'")
    if kind == "transfer":
        refused(with_option(encoder_specs[kind], "layer=1"), "Option 'layer' does not apply")


@pytest.mark.parametrize("kind", VERBS)
def test_results_and_features_lie_in_the_folder_of_the_run(encoder_specs, class_videos, tmp_path, kind):
    run = Path(shutil.copytree(encoder_specs[kind], tmp_path / "run"))
    before = {file.name for file in (run / "features").iterdir()} if (run / "features").exists() else set()
    first, again = (
        evaluate_retrieval([load(run)], TrainTestConfig(class_videos), RetrievalConfig(num_clips=1))["run"]
        for _ in range(2)
    )
    assert (first.reused, again.reused, first.encoder) == (False, True, str(run))
    assert (run / "retrieval.json").exists()
    assert len({file.name for file in (run / "features").iterdir()} - before) == 1
    evaluate_linear_probe(
        load(run), TrainTestConfig(class_videos), LinearProbeConfig(num_clips=1), feature_kinds=("whole",)
    )
    assert (run / "linear_probe.json").exists()


@pytest.mark.parametrize("kind", ["recipe", "transformers", "dino", "i3d"])
def test_what_is_no_run_has_no_folder_to_write_to(encoder_specs, class_videos, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoder = load(encoder_specs[kind])
    before = sorted(Path(encoder_specs["transformers"]).iterdir())
    (found,) = evaluate_retrieval([encoder], TrainTestConfig(class_videos), RetrievalConfig(num_clips=1)).values()
    assert encoder.run_dir is None
    assert not found.reused
    assert not list(tmp_path.iterdir())
    assert sorted(Path(encoder_specs["transformers"]).iterdir()) == before


def test_several_videos_give_a_row_each_and_a_torn_one_is_an_error(encoder_specs, class_videos, tmp_path):
    encoder = load(encoder_specs["pretrain"])
    paths = sorted(class_videos.glob("*/*.mp4"))
    found = encoder.embed(paths, num_crops=3)
    assert found.whole.shape == found.static.shape == found.dynamic.shape == (6, 8)
    assert len(found.motion) == 6
    np.testing.assert_array_equal(encoder.embed(str(paths[0])).whole, encoder.embed(paths[:1]).whole)
    with pytest.raises(StillmotionError, match="No videos to embed"):
        encoder.embed([])
    (tmp_path / "torn.mp4").write_bytes(b"torn")
    for videos in ([*paths, tmp_path / "torn.mp4"], [tmp_path / "torn.mp4"]):
        with pytest.raises(VideoError, match=r"torn\.mp4"):
            encoder.embed(videos)


def test_only_what_was_trained_here_from_nothing_has_an_untrained_twin(encoder_specs):
    for kind in ("pretrain", "recipe"):
        twin = load(encoder_specs[kind]).untrained()
        assert twin.origin.kind == kind
    for kind in MAPS.keys() - {"pretrain", "recipe"}:
        with pytest.raises(StillmotionError, match="no known initial weights"):
            load(encoder_specs[kind]).untrained()
