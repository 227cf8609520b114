"""Synthetic sequences with masks, in DAVIS's layout."""

import numpy as np

from stillmotion.data.dense import open_masks
from stillmotion.data.masked import RESOLUTION, write_masked
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet

CONFIG = SyntheticConfig(videos=2, length=4, size=32, noise=0.0)


def test_the_mask_is_where_the_foreground_was_painted():
    video = SyntheticSet(CONFIG, seed=3).video(0)
    frames, masks = video.frames(range(4)).astype(int), video.masks(range(4))
    bright = frames.min(-1) > 210  # the foreground is nearly white, the background has a hue
    assert masks.any((1, 2)).all()
    assert np.array_equal(bright, masks.astype(bool))


def test_a_written_set_opens_as_davis(tmp_path):
    sequences, broken = open_masks("davis", write_masked(tmp_path, CONFIG, seed=3), resolution=RESOLUTION)
    assert [s.name for s in sequences] == ["000", "001"]
    assert broken == []
    video = SyntheticSet(CONFIG, seed=3).video(1)
    assert np.array_equal(sequences[1].video.frames(range(4)), video.frames(range(4)))
    assert np.array_equal(sequences[1].mask(2), video.masks([2])[0])
