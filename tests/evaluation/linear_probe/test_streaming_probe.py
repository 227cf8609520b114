import numpy as np
import pytest
import torch
from support.class_videos import write_class_folders
from support.progress import record_progress

from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.splits import TrainTestConfig
from stillmotion.data.loading.loader_config import LoaderConfig
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.encoders import FEATURE_KINDS, extract_features, load
from stillmotion.encoders.feature_extraction import ClipViews
from stillmotion.errors import StillmotionError
from stillmotion.evaluation.linear_probe import streaming_probe
from stillmotion.evaluation.linear_probe.classifiers import sgd_probe_ranks
from stillmotion.evaluation.linear_probe.streaming_classifiers import SGDProbeConfig, StreamingLinearClassifiers
from stillmotion.evaluation.linear_probe.streaming_probe import run_streaming_probe

SHORT = SGDProbeConfig(epochs=3, warmup_epochs=1, batch_size=4)


def synthetic_videos(videos, seed):
    return SyntheticDataset(SyntheticConfig(num_videos=videos), seed=seed)


@pytest.fixture
def encoder(run):
    return load(run)


def test_the_streamed_probe_is_the_probe_of_features_that_are_held(encoder, monkeypatch):
    """Both probes get the same views of all videos at every step: the centre of clips as long as the video."""
    monkeypatch.setattr(
        streaming_probe,
        "_augment",
        lambda input_config: lambda clip, rng: streaming_probe.eval_crop(input_config)(clip)[0],
    )
    encoder = encoder.with_input(stride=1000)
    videos, tests = synthetic_videos(20, 1), synthetic_videos(20, 2)
    rule = SGDProbeConfig(epochs=8, warmup_epochs=2)
    actual = run_streaming_probe(
        encoder, videos, tests, ClipViews(), feature_kinds=("whole", "concat"), sgd_config=rule
    ).accuracy
    x, tx = (extract_features(encoder, split) for split in (videos, tests))
    for kind, by_target in actual.items():
        for target, result in by_target.items():
            views = [split.vectors(kind, average=False) for split in (x, tx)]
            expected = sgd_probe_ranks(views[0], videos.labels[target], views[1], tests.labels[target], sgd_config=rule)
            assert result == expected.accuracy()
    assert len({result.top1 for by_target in actual.values() for result in by_target.values()}) > 2


def test_every_feature_kind_uses_the_same_forward_passes(encoder, monkeypatch):
    calls = []
    forward = type(encoder).forward
    monkeypatch.setattr(type(encoder), "forward", lambda self, clips: calls.append(len(clips)) or forward(self, clips))
    actual = run_streaming_probe(
        encoder,
        synthetic_videos(6, 1),
        synthetic_videos(3, 2),
        ClipViews(num_clips=2),
        feature_kinds=FEATURE_KINDS,
        sgd_config=SHORT,
    )
    assert list(actual.accuracy) == list(FEATURE_KINDS)
    assert sum(calls) == 3 * 6 + 3 * 2


def test_a_batch_of_any_size_gives_the_same_probe(encoder):
    actual = [
        run_streaming_probe(
            encoder,
            synthetic_videos(6, 1),
            synthetic_videos(4, 2),
            ClipViews(),
            feature_kinds=("whole",),
            sgd_config=SHORT,
            loader=reading,
        )
        for reading in (LoaderConfig(batch_size=16), LoaderConfig(batch_size=1))
    ]
    assert actual[0] == actual[1]


def test_an_unreadable_video_is_named_and_another_stands_in(encoder, tmp_path):
    for name in ("train", "test"):
        folder = write_class_folders(tmp_path / name, videos_per_class=3, num_frames=10, image_size=32)
        (folder / "dark" / "torn.mp4").write_bytes(b"not a video")
    splits = [VideoFolder(tmp_path / name) for name in ("train", "test")]
    actual = run_streaming_probe(encoder, *splits, ClipViews(), feature_kinds=("whole",), sgd_config=SHORT)
    assert [len(actual.failed_train), len(actual.failed_test)] == [1, 1]


def test_a_probe_that_was_ended_goes_on_to_the_same_end(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming_probe, "_SAVE_INTERVAL_SECONDS", 0.0)
    options = {"feature_kinds": ("whole", "concat"), "sgd_config": SHORT}
    uninterrupted = run_streaming_probe(encoder, synthetic_videos(6, 1), synthetic_videos(4, 2), ClipViews(), **options)
    checkpoint = tmp_path / "checkpoint.safetensors"

    class Stopping(StreamingLinearClassifiers):
        def train_step(self, x, y, *, epoch):
            if epoch > 1.5:
                raise KeyboardInterrupt
            super().train_step(x, y, epoch=epoch)

    monkeypatch.setattr(streaming_probe, "StreamingLinearClassifiers", Stopping)
    with pytest.raises(KeyboardInterrupt):
        run_streaming_probe(
            encoder, synthetic_videos(6, 1), synthetic_videos(4, 2), ClipViews(), checkpoint_file=checkpoint, **options
        )
    assert checkpoint.exists()
    monkeypatch.setattr(streaming_probe, "StreamingLinearClassifiers", StreamingLinearClassifiers)
    with record_progress() as progress:
        second = run_streaming_probe(
            encoder, synthetic_videos(6, 1), synthetic_videos(4, 2), ClipViews(), checkpoint_file=checkpoint, **options
        )
    assert min(done for done, _ in progress) >= 6
    assert second == uninterrupted
    assert not checkpoint.exists()


def test_clips_differ_from_epoch_to_epoch_and_are_mirrored_alone_where_frames_are_entire(encoder):
    clips = streaming_probe._training_clips(encoder, synthetic_videos(2, 1), 0)
    first, second, later = (clips[key]["clips"] for key in ((0, 1), (0, 1), (1, 1)))
    assert torch.equal(first, second)
    assert not torch.equal(first, later)
    uniform = encoder.eval_input.over_whole_video(16, 20)
    frames = np.random.default_rng(0).integers(0, 256, (3, 24, 30, 3), np.uint8)
    augmented = {
        streaming_probe._augment(uniform)(frames, np.random.default_rng(s)).numpy().tobytes() for s in range(8)
    }
    assert len(augmented) == 2


def test_what_cannot_be_probed_is_an_error(encoder, tmp_path):
    folder = write_class_folders(tmp_path / "set", videos_per_class=2, num_frames=10, image_size=32)
    train, test = TrainTestConfig(folder).open().train_test()
    train.labels["class"][:] = 0
    with pytest.raises(StillmotionError, match="have the same class"):
        run_streaming_probe(encoder, train, test, ClipViews(), feature_kinds=("whole",))
