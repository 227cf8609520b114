"""Features of whole videos: what they are, that they are computed once, and what a kill leaves."""

import os

import numpy as np
import pytest
import torch
from debug_videos import change_quietly, write_classes
from safetensors.numpy import load_file, save_file
from tiny_models import save_model

from stillmotion.data.sets import FolderSet
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.data.untrimmed import DrawnUntrimmed, UntrimmedConfig
from stillmotion.encoders import Encoder, load
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.frames import FrameFeatures, centred

DRAWN = UntrimmedConfig(videos=2, test=1, segments=(2, 3), length=(5, 9), look=SyntheticConfig(size=32))


@pytest.fixture
def folder(tmp_path):
    root = write_classes(tmp_path / "set", videos=2, frames=11, size=32)
    (root / "dark" / "torn.mp4").write_bytes(b"not a video")
    return FolderSet(root)


def literal(encoder, video, *, hop):
    """Each feature from a clip of its own, normalised in words of the intake."""
    shown, length = encoder.intake, len(video)
    rows = []
    for t in range(0, length, hop):
        numbers = [min(max(t + shown.stride * (k - shown.frames // 2), 0), length - 1) for k in range(shown.frames)]
        pixels = torch.tensor(video.frames(numbers)).permute(3, 0, 1, 2).float() / 255
        mean, std = (torch.tensor(values)[:, None, None, None] for values in shown.normalisation)
        with torch.no_grad():
            rows.append(encoder.backbone(((pixels - mean) / std)[None])[0].mean(0))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("hop", [1, 3])
def test_a_feature_is_the_mean_over_the_clip_around_its_frame(run, tmp_path, hop):
    videos = DrawnUntrimmed(DRAWN, train=True)
    encoder = load(run)
    features = FrameFeatures(encoder, tmp_path / "kept", hop=hop)
    assert features.compute(videos, batch=4) == []
    for i in range(2):
        found = features.read(videos, i)
        assert found.dtype == np.float32
        assert len(found) == -(-len(videos.video(i)) // hop)
        np.testing.assert_allclose(found, literal(encoder, videos.video(i), hop=hop), atol=1e-4)


def test_clips_at_the_ends_repeat_the_first_and_last_frame():
    found = centred(np.array([0, 4]), frames=4, stride=2, length=5)
    assert found.tolist() == [[0, 0, 0, 2], [0, 2, 4, 4]]
    assert centred(np.array([3]), frames=1, stride=8, length=5).tolist() == [[3]]


def test_a_model_of_images_sees_each_frame_alone(tmp_path):
    model = save_model("dinov2", tmp_path / "model")
    features = FrameFeatures(load(model), tmp_path / "kept")
    assert features.encoder.intake.frames == 1
    assert FrameFeatures(load(f"{model}@frames=4"), tmp_path / "kept").encoder.intake.frames == 4
    videos = DrawnUntrimmed(DRAWN, train=True)
    features.compute(videos)
    assert features.read(videos, 0).shape == (len(videos.video(0)), features.encoder.backbone.width)


def test_what_was_computed_is_not_computed_again(run, folder, tmp_path, monkeypatch):
    first = FrameFeatures(load(run), tmp_path / "kept")
    broken = first.compute(folder)
    assert [name.rsplit("/", 1)[1] for name, _ in broken] == ["torn.mp4"]
    kept = [first.read(folder, i) for i in (0, 1, 3, 4)]
    with pytest.raises(VideoError, match=r"torn\.mp4: no features on disk"):
        first.read(folder, 2)

    def never(self, clips):
        raise AssertionError("computed again")

    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "forward", never)
        patched.setattr(FrameFeatures, "_embed", never)
        again = FrameFeatures(load(run), tmp_path / "kept")
        assert again.compute(folder) == broken
        for i, features in zip((0, 1, 3, 4), kept, strict=True):
            np.testing.assert_array_equal(again.read(folder, i), features)


def test_a_killed_computation_goes_on_at_the_video_it_was_in(run, folder, tmp_path, monkeypatch):
    whole = FrameFeatures(load(run), tmp_path / "whole")
    whole.compute(folder, batch=4)
    killed = FrameFeatures(load(run), tmp_path / "killed")
    calls, embed = [], FrameFeatures._embed

    def counted(self, clips):
        calls.append(len(clips))
        if len(calls) == 5:  # in the middle of the second video, whose pieces are 4, 4 and 3 long
            raise KeyboardInterrupt
        return embed(self, clips)

    with monkeypatch.context() as patched:
        patched.setattr(FrameFeatures, "_embed", counted)
        with pytest.raises(KeyboardInterrupt):
            killed.compute(folder, batch=4)
    assert len(list(killed.folder.iterdir())) == 1
    seen = []
    killed.compute(folder, batch=4, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (33, 33)
    for i in (0, 1, 3, 4):
        np.testing.assert_array_equal(killed.read(folder, i), whole.read(folder, i))


def test_what_changes_the_features_is_computed_anew(run, folder, tmp_path):
    def computed(text=run, *, hop=4, untrained=False):
        seen = [0]
        encoder = load(text)
        features = FrameFeatures(encoder.untrained() if untrained else encoder, tmp_path / "kept", hop=hop)
        features.compute(folder, progress=lambda done, total: seen.append(total))
        return seen[-1] > 0

    assert [computed(), computed()] == [True, False]
    assert computed(hop=5)
    assert computed(untrained=True)
    assert computed(f"{run}@frames=6")
    os.utime(folder.paths[0], (1, 1))
    assert not computed()
    change_quietly(folder.paths[0])
    assert computed()
    weights = load_file(run / "checkpoint.safetensors")
    name = next(n for n in weights if n.startswith("online.backbone.") and n.endswith("weight"))
    save_file(weights | {name: weights[name] * 1.01}, run / "checkpoint.safetensors")
    assert computed()
    assert not computed()


def test_drawn_videos_of_one_name_but_another_look_are_told_apart(run, tmp_path):
    features = FrameFeatures(load(run), tmp_path)
    plain, bare = (DrawnUntrimmed(config, train=True) for config in (DRAWN, UntrimmedConfig(videos=1, segments=(1, 1))))
    features.compute(plain)
    features.compute(bare)
    assert plain.name(0) == bare.name(0)
    assert len(features.read(plain, 0)) != len(features.read(bare, 0))


def test_a_damaged_file_is_written_anew(run, tmp_path):
    videos = DrawnUntrimmed(DRAWN, train=False)
    features = FrameFeatures(load(run), tmp_path)
    features.compute(videos)
    before, file = features.read(videos, 0), next(features.folder.iterdir())
    for damaged in (file.read_bytes()[:-7], file.read_bytes()[:-7] + b"another"):
        file.write_bytes(damaged)
        with pytest.raises(VideoError, match="damaged"):
            features.read(videos, 0)
        said = []
        features.compute(videos, say=said.append)
        assert said == [f"{file} is damaged or was swapped; it is computed anew"]
        np.testing.assert_array_equal(features.read(videos, 0), before)


def test_worker_processes_change_nothing(run, folder, tmp_path):
    alone, helped = (FrameFeatures(load(run), tmp_path / str(workers), hop=4) for workers in (0, 1))
    assert alone.compute(folder) == helped.compute(folder, workers=1)
    np.testing.assert_array_equal(alone.read(folder, 3), helped.read(folder, 3))


def test_a_hop_below_one_is_refused(run, tmp_path):
    with pytest.raises(StillmotionError, match="hop is 0"):
        FrameFeatures(load(run), tmp_path, hop=0)
