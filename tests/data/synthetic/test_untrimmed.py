"""Synthetic untrimmed videos are determined by the seed, and their labels name the motion."""

from dataclasses import replace

import numpy as np
import pytest

from stillmotion.data.synthetic.factors import FACTOR_VALUES, SyntheticConfig
from stillmotion.data.synthetic.untrimmed import SyntheticUntrimmedConfig, SyntheticUntrimmedDataset
from stillmotion.errors import StillmotionError
from stillmotion.functional.segmentation_metrics import find_segments

SMALL = SyntheticUntrimmedConfig(
    num_train=6,
    num_test=3,
    actions_per_video=(3, 5),
    frames_per_action=(6, 9),
    appearance=SyntheticConfig(image_size=24, noise_std=0.0),
)


def bright_place(frame):
    """Return the centre (y, x) and the number of pixels of the foreground."""
    rows, columns = np.nonzero(frame.min(-1) > 200)
    return rows.mean(), columns.mean(), len(rows)


def test_the_same_seed_draws_the_same_videos_and_halves_differ():
    first, second = (SyntheticUntrimmedDataset(SMALL, train=True, seed=3) for _ in range(2))
    test = SyntheticUntrimmedDataset(SMALL, train=False, seed=3)
    assert (len(first), len(test)) == (6, 3)
    for i in range(3):
        numbers = range(len(first.open_video(i)))
        assert np.array_equal(first.open_video(i).get_frames(numbers), second.open_video(i).get_frames(numbers))
        assert not np.array_equal(first.open_video(i).get_frames(range(9)), test.open_video(i).get_frames(range(9)))
    assert len({*first.video_ids, *test.video_ids}) == 9


def test_videos_have_as_many_actions_and_frames_as_asked_for():
    dataset = SyntheticUntrimmedDataset(replace(SMALL, num_train=40), train=True)
    counts = set()
    for i in range(40):
        segments = find_segments(dataset.frame_labels(i))
        counts.add(len(segments))
        assert all(6 <= segment.stop - segment.start <= 9 for segment in segments)
        assert len(dataset.open_video(i)) == len(dataset.frame_labels(i))
    assert counts == {3, 4, 5}
    assert dataset.actions == FACTOR_VALUES["trajectory"]


def test_single_frames_are_those_of_the_whole_video():
    video = SyntheticUntrimmedDataset(SMALL, train=True).open_video(1)
    frames = video.get_frames(range(len(video)))
    assert frames.dtype == np.uint8
    assert np.array_equal(video.get_frames([9, 0, 9, 14]), frames[[9, 0, 9, 14]])


def test_only_the_labelled_motion_is_seen():
    dataset = SyntheticUntrimmedDataset(replace(SMALL, num_train=12), train=True)
    checked = set()
    for i in range(12):
        video = dataset.open_video(i)
        frames = video.get_frames(range(len(video)))
        for segment in find_segments(dataset.frame_labels(i)):
            y, x, area = (
                np.ptp(values) for values in zip(*map(bright_place, frames[segment.start : segment.stop]), strict=True)
            )
            action = dataset.actions[segment.label]
            checked.add(action)
            if action == "horizontal":
                assert x > 2 * y
            if action == "vertical":
                assert y > 2 * x
            if action == "circling":
                assert min(x, y) > 1
            if action == "zooming":
                assert area > 20
    assert checked == set(dataset.actions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_train": 0}, "synthetic.num_train is 0"),
        ({"actions_per_video": (3, 2)}, "synthetic.actions_per_video is 3 to 2"),
        ({"frames_per_action": (0, 2)}, "synthetic.frames_per_action is 0 to 2"),
    ],
)
def test_options_that_make_no_videos_are_named(options, words):
    with pytest.raises(StillmotionError, match=words):
        replace(SMALL, **options)
