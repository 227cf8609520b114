"""Features of every frame of a video are computed once, and an interrupted computation continues."""

import os

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from support.class_videos import alter_bytes_keep_mtime, write_class_folders
from support.progress import record_progress
from support.tiny_transformers import save_model

from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.synthetic.factors import SyntheticConfig
from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedConfig, SyntheticUntrimmedDataset
from stillmotion.encoders import Encoder, load
from stillmotion.encoders.frame_feature_cache import FrameFeatureCache
from stillmotion.errors import StillmotionError, VideoError

DRAWN = SyntheticUntrimmedConfig(
    num_train=2,
    num_test=1,
    actions_per_video=(2, 3),
    frames_per_action=(5, 9),
    appearance=SyntheticConfig(image_size=32),
)


@pytest.fixture
def folder(tmp_path):
    root = write_class_folders(tmp_path / "set", videos_per_class=2, num_frames=11, image_size=32)
    (root / "dark" / "torn.mp4").write_bytes(b"not a video")
    return VideoFolder(root)


def literal(encoder, video, *, hop):
    """Compute each feature from its own clip, normalized by hand."""
    config, length = encoder.input_config, len(video)
    rows = []
    for t in range(0, length, hop):
        offsets = (config.stride * (k - config.num_frames // 2) for k in range(config.num_frames))
        numbers = [min(max(t + offset, 0), length - 1) for offset in offsets]
        pixels = torch.tensor(video.get_frames(numbers)).permute(3, 0, 1, 2).float() / 255
        mean, std = (torch.tensor(values)[:, None, None, None] for values in config.normalization)
        with torch.no_grad():
            rows.append(encoder.backbone(((pixels - mean) / std)[None])[0].mean(0))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("hop", [1, 3])
def test_a_feature_is_the_mean_over_the_clip_around_its_frame(run, tmp_path, hop):
    videos = SyntheticUntrimmedDataset(DRAWN, train=True)
    encoder = load(run)
    features = FrameFeatureCache(encoder, tmp_path / "kept", feature_stride=hop)
    assert features.compute_missing(videos, batch_size=4) == []
    for i in range(2):
        result = features.load(videos, i)
        assert result.dtype == np.float32
        assert len(result) == -(-len(videos.open_video(i)) // hop)
        np.testing.assert_allclose(result, literal(encoder, videos.open_video(i), hop=hop), atol=1e-4)


def test_a_model_of_images_sees_each_frame_alone(tmp_path):
    model = save_model("dinov2", tmp_path / "model")
    features = FrameFeatureCache(load(model), tmp_path / "kept")
    assert features.encoder.input_config.num_frames == 1
    assert FrameFeatureCache(load(f"{model}@frames=4"), tmp_path / "kept").encoder.input_config.num_frames == 4
    videos = SyntheticUntrimmedDataset(DRAWN, train=True)
    features.compute_missing(videos)
    assert features.load(videos, 0).shape == (len(videos.open_video(0)), features.encoder.backbone.out_features)


def test_what_was_computed_is_not_computed_again(run, folder, tmp_path, monkeypatch):
    first = FrameFeatureCache(load(run), tmp_path / "kept")
    broken = first.compute_missing(folder)
    assert [name.rsplit("/", 1)[1] for name, _ in broken] == ["torn.mp4"]
    stored = [first.load(folder, i) for i in (0, 1, 3, 4)]
    with pytest.raises(VideoError, match=r"torn\.mp4: no features on disk"):
        first.load(folder, 2)

    def fail(self, clips):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "forward", fail)
        patch.setattr(FrameFeatureCache, "_embed", fail)
        second = FrameFeatureCache(load(run), tmp_path / "kept")
        assert second.compute_missing(folder) == broken
        for i, features in zip((0, 1, 3, 4), stored, strict=True):
            np.testing.assert_array_equal(second.load(folder, i), features)


def test_a_killed_computation_goes_on_at_the_video_it_was_in(run, folder, tmp_path, monkeypatch):
    uninterrupted = FrameFeatureCache(load(run), tmp_path / "whole")
    uninterrupted.compute_missing(folder, batch_size=4)
    interrupted = FrameFeatureCache(load(run), tmp_path / "killed")
    calls, embed = [], FrameFeatureCache._embed

    def counting_forward(self, clips):
        calls.append(len(clips))
        if len(calls) == 5:  # in the middle of the second video, whose parts have 4, 4 and 3 frames
            raise KeyboardInterrupt
        return embed(self, clips)

    with monkeypatch.context() as patch:
        patch.setattr(FrameFeatureCache, "_embed", counting_forward)
        with pytest.raises(KeyboardInterrupt):
            interrupted.compute_missing(folder, batch_size=4)
    assert len(list(interrupted.cache_dir.iterdir())) == 1
    with record_progress() as progress:
        interrupted.compute_missing(folder, batch_size=4)
    assert progress[-1] == (33, 33)
    for i in (0, 1, 3, 4):
        np.testing.assert_array_equal(interrupted.load(folder, i), uninterrupted.load(folder, i))


def test_what_changes_the_features_is_computed_anew(run, folder, tmp_path):
    def is_computed(text=run, *, hop=4, untrained=False):
        encoder = load(text)
        features = FrameFeatureCache(
            encoder.untrained() if untrained else encoder, tmp_path / "kept", feature_stride=hop
        )
        with record_progress() as progress:
            features.compute_missing(folder)
        return bool(progress)

    assert [is_computed(), is_computed()] == [True, False]
    assert is_computed(hop=5)
    assert is_computed(untrained=True)
    assert is_computed(f"{run}@frames=6")
    os.utime(folder.paths[0], (1, 1))
    assert not is_computed()
    alter_bytes_keep_mtime(folder.paths[0])
    assert is_computed()
    weights = load_file(run / "checkpoint.safetensors")
    name = next(n for n in weights if n.startswith("online.backbone.") and n.endswith("weight"))
    save_file(weights | {name: weights[name] * 1.01}, run / "checkpoint.safetensors")
    assert is_computed()
    assert not is_computed()


def test_synthetic_videos_with_equal_names_but_different_pixels_are_cached_separately(run, tmp_path):
    features = FrameFeatureCache(load(run), tmp_path)
    textured, untextured = (
        SyntheticUntrimmedDataset(config, train=True)
        for config in (DRAWN, SyntheticUntrimmedConfig(num_train=1, actions_per_video=(1, 1)))
    )
    features.compute_missing(textured)
    features.compute_missing(untextured)
    assert textured.name(0) == untextured.name(0)
    assert len(features.load(textured, 0)) != len(features.load(untextured, 0))


def test_a_damaged_file_is_written_anew(run, tmp_path, caplog):
    videos = SyntheticUntrimmedDataset(DRAWN, train=False)
    features = FrameFeatureCache(load(run), tmp_path)
    features.compute_missing(videos)
    before, file = features.load(videos, 0), next(features.cache_dir.iterdir())
    for damaged in (file.read_bytes()[:-7], file.read_bytes()[:-7] + b"another"):
        file.write_bytes(damaged)
        with pytest.raises(VideoError, match="damaged"):
            features.load(videos, 0)
        caplog.clear()
        features.compute_missing(videos)
        assert caplog.messages == [f"{file} is damaged or was renamed; it is computed again"]
        np.testing.assert_array_equal(features.load(videos, 0), before)


def test_worker_processes_change_nothing(run, folder, tmp_path):
    in_process, with_workers = (
        FrameFeatureCache(load(run), tmp_path / str(workers), feature_stride=4) for workers in (0, 1)
    )
    assert in_process.compute_missing(folder) == with_workers.compute_missing(folder, num_workers=1)
    np.testing.assert_array_equal(in_process.load(folder, 3), with_workers.load(folder, 3))


def test_a_hop_below_one_is_refused(run, tmp_path):
    with pytest.raises(StillmotionError, match="must be at least 1, got 0"):
        FrameFeatureCache(load(run), tmp_path, feature_stride=0)


@pytest.mark.parametrize("method", ["open_video", "get_frames"])
def test_a_video_that_raises_anything_is_named_and_the_others_are_computed(run, tmp_path, monkeypatch, method):
    videos = SyntheticUntrimmedDataset(DRAWN, train=True)
    real_open = SyntheticUntrimmedDataset.open_video

    def fail(*_):
        raise MemoryError

    def open_video(self, i):
        video = real_open(self, i)
        if i == 0:
            if method == "open_video":
                fail()
            video.get_frames = fail
        return video

    monkeypatch.setattr(SyntheticUntrimmedDataset, "open_video", open_video)
    features = FrameFeatureCache(load(run), tmp_path / "kept")
    assert features.compute_missing(videos) == [(videos.name(0), f"{videos.name(0)}: not enough memory")]
    assert len(features.load(videos, 1)) > 0
