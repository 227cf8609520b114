"""Drawn untrimmed videos: what the seed fixes, and that labels tell what moves."""

from dataclasses import replace

import numpy as np
import pytest

from stillmotion.data.synthetic import CLASSES, SyntheticConfig
from stillmotion.data.untrimmed import DrawnUntrimmed, UntrimmedConfig
from stillmotion.errors import StillmotionError
from stillmotion.functional.segments import segments

SMALL = UntrimmedConfig(videos=6, test=3, segments=(3, 5), length=(6, 9), look=SyntheticConfig(size=24, noise=0.0))


def bright_place(frame):
    """The centre (y, x) and the number of the foreground's pixels."""
    rows, columns = np.nonzero(frame.min(-1) > 200)
    return rows.mean(), columns.mean(), len(rows)


def test_the_same_seed_draws_the_same_videos_and_halves_differ():
    first, again = (DrawnUntrimmed(SMALL, train=True, seed=3) for _ in range(2))
    test = DrawnUntrimmed(SMALL, train=False, seed=3)
    assert (len(first), len(test)) == (6, 3)
    for i in range(3):
        numbers = range(len(first.video(i)))
        assert np.array_equal(first.video(i).frames(numbers), again.video(i).frames(numbers))
        assert not np.array_equal(first.video(i).frames(range(9)), test.video(i).frames(range(9)))
    assert len({*first.names, *test.names}) == 9


def test_videos_have_as_many_actions_and_frames_as_asked_for():
    drawn = DrawnUntrimmed(replace(SMALL, videos=40), train=True)
    counts = set()
    for i in range(40):
        parts = segments(drawn.frame_labels(i))
        counts.add(len(parts))
        assert all(6 <= part.stop - part.start <= 9 for part in parts)
        assert len(drawn.video(i)) == len(drawn.frame_labels(i))
    assert counts == {3, 4, 5}
    assert drawn.actions == CLASSES["trajectory"]


def test_single_frames_are_those_of_the_whole_video():
    video = DrawnUntrimmed(SMALL, train=True).video(1)
    whole = video.frames(range(len(video)))
    assert whole.dtype == np.uint8
    assert np.array_equal(video.frames([9, 0, 9, 14]), whole[[9, 0, 9, 14]])


def test_only_the_labelled_motion_is_seen():
    drawn = DrawnUntrimmed(replace(SMALL, videos=12), train=True)
    checked = set()
    for i in range(12):
        video = drawn.video(i)
        frames = video.frames(range(len(video)))
        for part in segments(drawn.frame_labels(i)):
            y, x, area = (
                np.ptp(values) for values in zip(*map(bright_place, frames[part.start : part.stop]), strict=True)
            )
            action = drawn.actions[part.label]
            checked.add(action)
            if action == "horizontal":
                assert x > 2 * y
            if action == "vertical":
                assert y > 2 * x
            if action == "circling":
                assert min(x, y) > 1
            if action == "zooming":
                assert area > 20
    assert checked == set(drawn.actions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"videos": 0}, "untrimmed videos is 0"),
        ({"segments": (3, 2)}, "untrimmed segments is 3 to 2"),
        ({"length": (0, 2)}, "untrimmed length is 0 to 2"),
    ],
)
def test_options_that_make_no_videos_are_named(options, words):
    with pytest.raises(StillmotionError, match=words):
        replace(SMALL, **options)
