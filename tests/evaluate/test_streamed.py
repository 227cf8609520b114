import numpy as np
import pytest
import torch
from debug_videos import write_classes

from stillmotion.data.halves import Halves
from stillmotion.data.reading import Reading
from stillmotion.data.sets import FolderSet
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.encoders import KINDS, extract, load
from stillmotion.encoders.features import Views
from stillmotion.errors import StillmotionError
from stillmotion.evaluate import streamed
from stillmotion.evaluate.linear import sgd_ranks
from stillmotion.evaluate.sgd import Sgd
from stillmotion.evaluate.streamed import streamed_probe

SHORT = Sgd(epochs=3, warmup_epochs=1, batch=4)


def drawn(videos, seed):
    return SyntheticSet(SyntheticConfig(videos=videos), seed=seed)


@pytest.fixture
def encoder(run):
    return load(run)


def test_the_streamed_probe_is_the_probe_of_features_that_are_held(encoder, monkeypatch):
    """Where both see the same views, of all videos at every step: the centre of clips as long as the video."""
    monkeypatch.setattr(streamed, "_augment", lambda intake: lambda clip, rng: streamed.centre_crops(intake)(clip)[0])
    encoder = encoder.shown(stride=1000)
    videos, tests = drawn(20, 1), drawn(20, 2)
    rule = Sgd(epochs=8, warmup_epochs=2)
    found = streamed_probe(encoder, videos, tests, Views(), kinds=("whole", "both"), rule=rule).accuracy
    x, tx = (extract(encoder, half) for half in (videos, tests))
    for kind, by_target in found.items():
        for target, result in by_target.items():
            views = [half.vector(kind, average=False) for half in (x, tx)]
            held = sgd_ranks(views[0], videos.labels[target], views[1], tests.labels[target], rule=rule)
            assert result == held.result()
    assert len({result.top1 for by_target in found.values() for result in by_target.values()}) > 2


def test_every_kind_is_asked_of_the_same_passes(encoder, monkeypatch):
    calls = []
    forward = type(encoder).forward
    monkeypatch.setattr(type(encoder), "forward", lambda self, clips: calls.append(len(clips)) or forward(self, clips))
    found = streamed_probe(encoder, drawn(6, 1), drawn(3, 2), Views(clips=2), kinds=KINDS, rule=SHORT)
    assert list(found.accuracy) == list(KINDS)
    assert sum(calls) == 3 * 6 + 3 * 2


def test_a_batch_of_any_size_gives_the_same_probe(encoder):
    found = [
        streamed_probe(encoder, drawn(6, 1), drawn(4, 2), Views(), kinds=("whole",), rule=SHORT, reading=reading)
        for reading in (Reading(batch=16), Reading(batch=1))
    ]
    assert found[0] == found[1]


def test_an_unreadable_video_is_named_and_another_stands_in(encoder, tmp_path):
    for half in ("train", "test"):
        folder = write_classes(tmp_path / half, videos=3, frames=10, size=32)
        (folder / "dark" / "torn.mp4").write_bytes(b"not a video")
    halves = [FolderSet(tmp_path / half) for half in ("train", "test")]
    found = streamed_probe(encoder, *halves, Views(), kinds=("whole",), rule=SHORT)
    assert [len(found.train_broken), len(found.test_broken)] == [1, 1]


def test_a_probe_that_was_ended_goes_on_to_the_same_end(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "_PAUSE", 0.0)
    options = {"kinds": ("whole", "both"), "rule": SHORT}
    whole = streamed_probe(encoder, drawn(6, 1), drawn(4, 2), Views(), **options)
    kept = tmp_path / "kept.safetensors"

    def stop(done, total):
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        streamed_probe(encoder, drawn(6, 1), drawn(4, 2), Views(), kept=kept, progress=stop, **options)
    assert kept.exists()
    seen = []
    again = streamed_probe(
        encoder, drawn(6, 1), drawn(4, 2), Views(), kept=kept, progress=lambda done, _: seen.append(done), **options
    )
    assert min(seen) >= 6
    assert again == whole
    assert not kept.exists()


def test_clips_differ_from_epoch_to_epoch_and_are_mirrored_alone_where_frames_are_entire(encoder):
    clips = streamed._training_clips(encoder, drawn(2, 1), 0)
    first, again, later = (clips[key]["clips"] for key in ((0, 1), (0, 1), (1, 1)))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    spread = encoder.survey.spread(16, 20)
    frames = np.random.default_rng(0).integers(0, 256, (3, 24, 30, 3), np.uint8)
    shown = {streamed._augment(spread)(frames, np.random.default_rng(s)).numpy().tobytes() for s in range(8)}
    assert len(shown) == 2


def test_what_cannot_be_probed_is_said(encoder, tmp_path):
    folder = write_classes(tmp_path / "set", videos=2, frames=10, size=32)
    train, test = Halves(folder).open().halves()
    train.labels["class"][:] = 0
    with pytest.raises(StillmotionError, match="have the same class"):
        streamed_probe(encoder, train, test, Views(), kinds=("whole",))
