"""Synthetic sequences with masks, in DAVIS's layout."""

import numpy as np

from stillmotion.data.datasets.davis import open_mask_sequences
from stillmotion.data.synthetic.factors import DAVIS_RESOLUTION, SyntheticConfig, SyntheticDataset, write_davis_layout

CONFIG = SyntheticConfig(num_videos=2, num_frames=4, image_size=32, noise_std=0.0)


def test_the_mask_is_where_the_foreground_was_painted():
    video = SyntheticDataset(CONFIG, seed=3).open_video(0)
    frames, masks = video.get_frames(range(4)).astype(int), video.get_masks(range(4))
    bright = frames.min(-1) > 210  # the foreground is nearly white, the background has a hue
    assert masks.any((1, 2)).all()
    assert np.array_equal(bright, masks.astype(bool))


def test_a_written_set_opens_as_davis(tmp_path):
    sequences, failed = open_mask_sequences(
        "davis", write_davis_layout(tmp_path, CONFIG, seed=3), resolution=DAVIS_RESOLUTION
    )
    assert [s.name for s in sequences] == ["000", "001"]
    assert failed == []
    video = SyntheticDataset(CONFIG, seed=3).open_video(1)
    assert np.array_equal(sequences[1].video.get_frames(range(4)), video.get_frames(range(4)))
    assert np.array_equal(sequences[1].read_mask(2), video.get_masks([2])[0])
