"""Drawn actors: two actions each, boxes that fit, and a detector that errs a little."""

import numpy as np
import pytest

from stillmotion.data.acting import CLASSES, DOES, GOES, ActingConfig, ActingSet, ActingVideo
from stillmotion.errors import StillmotionError

SMALL = ActingConfig(videos=6, tests=4, size=48)


def test_every_actor_does_two_things_at_a_time():
    found = ActingSet(SMALL)
    by_box = {}
    for key, box, action in zip(*found.truth[:3], strict=True):
        by_box.setdefault((key, tuple(box)), []).append(CLASSES[action])
    assert all(goes in GOES and does in DOES for goes, does in by_box.values())
    per_frame = [sum(key == frame for key, _ in by_box) for frame in dict.fromkeys(found.truth.keys)]
    assert set(per_frame) <= {2, 3}


def test_a_box_holds_the_pixels_of_its_actor():
    for seed in range(8):
        video = ActingVideo(ActingConfig(noise=0), np.random.default_rng(seed))
        every = video.actors
        video.actors = []
        empty = video.frames([12])[0].astype(int)
        for actor in every:
            video.actors = [actor]
            ys, xs = np.nonzero(np.abs(video.frames([12])[0] - empty).sum(-1))
            covered = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
            assert np.abs(actor.box(12, 48) * 48 - covered).max() <= 1


def test_the_same_seed_gives_the_same_videos_and_boxes():
    a, b, other = ActingSet(SMALL), ActingSet(SMALL), ActingSet(SMALL, seed=1)
    np.testing.assert_array_equal(a.frames.boxes, b.frames.boxes)
    np.testing.assert_array_equal(a.video(5).frames([3, 9]), b.video(5).frames([3, 9]))
    assert not np.array_equal(a.video(5).frames([3]), other.video(5).frames([3]))
    assert not np.array_equal(a.video(0).frames([3]), ActingSet(SMALL, train=True).video(0).frames([3]))


def test_the_test_has_detected_boxes_and_training_annotated_ones_too():
    test, train = ActingSet(SMALL), ActingSet(SMALL, train=True)
    assert not test.frames.actions.any()
    assert train.frames.actions.sum(1).max() == 2
    assert (train.frames.actions.sum(1) == 0).any()  # false boxes
    assert len(ActingSet(SMALL, score=0.99).frames.boxes) < len(test.frames.boxes)


def test_too_small_a_set_is_refused():
    with pytest.raises(StillmotionError, match=r"acting\.seconds is 2; it must be at least 3"):
        ActingConfig(seconds=2)
