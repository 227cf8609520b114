"""Synthetic actors: two actions each, tight boxes, and a detector with small errors."""

import numpy as np
import pytest

from stillmotion.data.synthetic.ava import (
    PATH_ACTIONS,
    POSE_ACTIONS,
    SYNTHETIC_ACTIONS,
    SyntheticAVAConfig,
    SyntheticAVADataset,
    SyntheticAVAVideo,
)
from stillmotion.errors import StillmotionError

SMALL = SyntheticAVAConfig(num_train=6, num_test=4, image_size=48)


def test_every_actor_does_two_things_at_a_time():
    dataset = SyntheticAVADataset(SMALL)
    by_box = {}
    for key, box, action in zip(*dataset.annotated_boxes[:3], strict=True):
        by_box.setdefault((key, tuple(box)), []).append(SYNTHETIC_ACTIONS[action])
    assert all(
        path_action in PATH_ACTIONS and pose_action in POSE_ACTIONS for path_action, pose_action in by_box.values()
    )
    per_frame = [sum(key == frame for key, _ in by_box) for frame in dict.fromkeys(dataset.annotated_boxes.keyframes)]
    assert set(per_frame) <= {2, 3}


def test_a_box_holds_the_pixels_of_its_actor():
    for seed in range(8):
        video = SyntheticAVAVideo(SyntheticAVAConfig(noise_std=0), np.random.default_rng(seed))
        actors = video.actors
        video.actors = []
        empty = video.get_frames([12])[0].astype(int)
        for actor in actors:
            video.actors = [actor]
            ys, xs = np.nonzero(np.abs(video.get_frames([12])[0] - empty).sum(-1))
            covered = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
            assert np.abs(actor.box(12, 48) * 48 - covered).max() <= 1


def test_the_same_seed_gives_the_same_videos_and_boxes():
    a, b, other = SyntheticAVADataset(SMALL), SyntheticAVADataset(SMALL), SyntheticAVADataset(SMALL, seed=1)
    np.testing.assert_array_equal(a.keyframes.boxes, b.keyframes.boxes)
    np.testing.assert_array_equal(a.open_video(5).get_frames([3, 9]), b.open_video(5).get_frames([3, 9]))
    assert not np.array_equal(a.open_video(5).get_frames([3]), other.open_video(5).get_frames([3]))
    assert not np.array_equal(
        a.open_video(0).get_frames([3]), SyntheticAVADataset(SMALL, train=True).open_video(0).get_frames([3])
    )


def test_the_test_has_detected_boxes_and_training_annotated_ones_too():
    test, train = SyntheticAVADataset(SMALL), SyntheticAVADataset(SMALL, train=True)
    assert not test.keyframes.actions.any()
    assert train.keyframes.actions.sum(1).max() == 2
    assert (train.keyframes.actions.sum(1) == 0).any()  # false boxes
    assert len(SyntheticAVADataset(SMALL, min_score=0.99).keyframes.boxes) < len(test.keyframes.boxes)


def test_too_small_a_set_is_refused():
    with pytest.raises(StillmotionError, match=r"synthetic\.seconds is 2; must be at least 3"):
        SyntheticAVAConfig(seconds=2)
