"""Every kind of encoder has the same interface: specs, embeddings, feature maps and tables."""

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

# Time steps, rows, columns and channels of the feature map of a clip, by kind.
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
# Kinds of encoders with stages, and the number of channels of the first stage.
STAGED = {"pretrain": 4, "finetune": 8, "detect": 8, "segment": 4, "recipe": 8, "i3d": 64}


def clip(encoder: Encoder) -> torch.Tensor:
    config = encoder.input_config
    return torch.randn(
        2, 3, config.num_frames, config.image_size, config.image_size, generator=torch.Generator().manual_seed(0)
    )


def with_option(text: str, option: str) -> str:
    return f"{text}{',' if '@' in text else '@'}{option}"


def assert_refused(text: str, message: str) -> None:
    with pytest.raises(StillmotionError, match=message):
        run_encoder(text)


def run_encoder(text: str) -> None:
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
            embedding = encoder.embed([path], num_clips=2)
            for name in ("whole", "static", "dynamic"):
                (row,) = getattr(embedding, name)
                assert (row.dtype, row.shape) == (np.float32, (MAPS[kind][-1],))
                np.testing.assert_allclose(row, table[name][i], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", MAPS)
def test_maps_have_a_feature_for_every_place(encoder_specs, kind):
    encoder = load(encoder_specs[kind])
    clips = clip(encoder)
    with torch.no_grad():
        maps, embedding = encoder.feature_maps(clips), encoder(clips)
    assert maps.shape == (2, *MAPS[kind])
    assert embedding.frames.shape == (2, MAPS[kind][0], MAPS[kind][-1])
    torch.testing.assert_close(embedding.whole, embedding.frames.mean(1))
    if kind not in ("transformers", "dino"):  # their features are class tokens
        torch.testing.assert_close(embedding.frames, maps.mean((2, 3)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", MAPS)
def test_motion_features_of_framewise_encoders_come_from_token_matches(encoder_specs, kind):
    encoder = load(encoder_specs[kind])
    clips = clip(encoder)
    with torch.no_grad():
        embedding, maps = encoder(clips), encoder.feature_maps(clips)
    is_framewise = kind in ("transfer", "transformers", "dino")
    torch.testing.assert_close(
        embedding.motion, motion_embedding(maps) if is_framewise else embedding.dynamic, atol=1e-4, rtol=1e-3
    )


def test_every_builtin_kind_is_tested_here():
    # Tests of original checkpoints, video checkpoints, the hub and color flow have these.
    tested_elsewhere = {*CHECKPOINT_FAMILIES, *VIDEO_CHECKPOINTS, "hub", "flow"}
    assert {*MAPS, *tested_elsewhere} == set(ENCODER_KINDS.builtin)


def test_a_video_is_shown_to_a_model_of_images_as_a_few_small_frames(encoder_specs):
    config = load(encoder_specs["dino"]).eval_input  # 4×4 patches of 8 pixels
    assert (config.num_frames, config.stride, config.whole_frame) == (16, 0, True)
    assert (config.image_size, config.frame_width) == (32, 40)
    # A size in the spec means square frames.
    assert load(f"{encoder_specs['dino']}@size=24").eval_input.frame_width == 0
    assert load(encoder_specs["pretrain"]).eval_input == load(encoder_specs["pretrain"]).input_config


@pytest.mark.parametrize("kind", MAPS)
def test_clips_follow_the_options_of_the_spec(encoder_specs, class_videos, kind):
    options = {"frames": 32 if kind == "i3d" else 9, "stride": 2, "size": 56}
    encoder = load(with_option(encoder_specs[kind], ",".join(f"{name}={value}" for name, value in options.items())))
    fields = {"num_frames": options["frames"], "stride": 2, "image_size": 56}
    assert encoder.input_config == replace(load(encoder_specs[kind]).input_config, **fields)
    assert encoder.origin.options == options
    assert load(encoder.origin.spec).input_config == encoder.input_config
    (row,) = encoder.embed([class_videos / "dark" / "0.mp4"], num_clips=1).whole
    (default_row,) = load(encoder_specs[kind]).embed([class_videos / "dark" / "0.mp4"], num_clips=1).whole
    assert row.shape == default_row.shape
    assert not np.allclose(row, default_row, rtol=1e-3)


@pytest.mark.parametrize("kind", STAGED)
def test_a_layer_is_a_stage_of_our_networks_and_of_i3d(encoder_specs, kind):
    encoder = load(with_option(encoder_specs[kind], "layer=1"))
    clips = clip(encoder)
    with torch.no_grad():
        maps, frames = encoder.feature_maps(clips), encoder(clips).frames
    assert maps.shape[-1] == frames.shape[-1] == STAGED[kind]
    torch.testing.assert_close(frames, maps.mean((2, 3)), atol=1e-4, rtol=1e-4)
    assert_refused(
        with_option(encoder_specs[kind], "layer=0"), "layer is 0; must be between 1 and the number of stages"
    )
    assert_refused(
        with_option(encoder_specs[kind], "layer=9"), "layer is 9; must be between 1 and the number of stages"
    )


@pytest.mark.parametrize("kind", ["transformers", "dino"])
def test_a_layer_is_a_block_of_a_transformer_and_a_pool_is_its_tokens(encoder_specs, kind):
    encoder = load(encoder_specs[kind])
    clips = clip(encoder)
    frames = clips.transpose(1, 2).flatten(0, 1)
    with torch.no_grad():
        output = encoder.backbone.model(frames, output_hidden_states=True)
        tokens = {"": output.last_hidden_state, "layer=1": output.hidden_states[1]}
        for option, of_block in tokens.items():
            for pool, row in (("cls", of_block[:, 0]), ("mean", of_block[:, 1:].mean(1))):
                options = ",".join(filter(None, (option, f"pool={pool}")))
                features = load(with_option(encoder_specs[kind], options))(clips).frames
                torch.testing.assert_close(features, row.unflatten(0, (2, -1)), atol=1e-4, rtol=1e-4)
            maps = load(with_option(encoder_specs[kind], option) if option else encoder_specs[kind]).feature_maps(clips)
            torch.testing.assert_close(maps.flatten(0, 1).flatten(1, 2), of_block[:, 1:], atol=1e-4, rtol=1e-4)
    assert_refused(with_option(encoder_specs[kind], "layer=3"), "layer is 3; this .* has blocks 1 to 2")


@pytest.mark.parametrize("kind", [*STAGED, "transfer"])
def test_what_a_kind_does_not_take_is_refused(encoder_specs, kind):
    assert_refused(
        with_option(encoder_specs[kind], "pool=cls"),
        "Option 'pool' does not apply to .*; it is for image models" if kind != "transfer" else "no class token",
    )
    assert_refused(with_option(encoder_specs[kind], "heads=2"), "Unknown option 'heads=2'")
    if kind == "transfer":
        assert_refused(with_option(encoder_specs[kind], "layer=1"), "Option 'layer' does not apply")


@pytest.mark.parametrize("kind", VERBS)
def test_results_and_features_lie_in_the_folder_of_the_run(encoder_specs, class_videos, tmp_path, kind):
    run = Path(shutil.copytree(encoder_specs[kind], tmp_path / "run"))
    before = {file.name for file in (run / "features").iterdir()} if (run / "features").exists() else set()
    first, second = (
        evaluate_retrieval([load(run)], TrainTestConfig(class_videos), RetrievalConfig(num_clips=1))["run"]
        for _ in range(2)
    )
    assert (first.reused, second.reused, first.encoder) == (False, True, str(run))
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
    (result,) = evaluate_retrieval([encoder], TrainTestConfig(class_videos), RetrievalConfig(num_clips=1)).values()
    assert encoder.run_dir is None
    assert not result.reused
    assert not list(tmp_path.iterdir())
    assert sorted(Path(encoder_specs["transformers"]).iterdir()) == before


def test_several_videos_give_a_row_each_and_a_torn_one_is_an_error(encoder_specs, class_videos, tmp_path):
    encoder = load(encoder_specs["pretrain"])
    paths = sorted(class_videos.glob("*/*.mp4"))
    embedding = encoder.embed(paths, num_crops=3)
    assert embedding.whole.shape == embedding.static.shape == embedding.dynamic.shape == (6, 8)
    assert len(embedding.motion) == 6
    np.testing.assert_array_equal(encoder.embed(str(paths[0])).whole, encoder.embed(paths[:1]).whole)
    with pytest.raises(StillmotionError, match="No videos to embed"):
        encoder.embed([])
    (tmp_path / "torn.mp4").write_bytes(b"torn")
    for videos in ([*paths, tmp_path / "torn.mp4"], [tmp_path / "torn.mp4"]):
        with pytest.raises(VideoError, match=r"torn\.mp4"):
            encoder.embed(videos)


def test_only_runs_and_recipes_trained_from_scratch_have_an_untrained_version(encoder_specs):
    for kind in ("pretrain", "recipe"):
        twin = load(encoder_specs[kind]).untrained()
        assert twin.origin.kind == kind
    for kind in MAPS.keys() - {"pretrain", "recipe"}:
        with pytest.raises(StillmotionError, match="no known initial weights"):
            load(encoder_specs[kind]).untrained()
