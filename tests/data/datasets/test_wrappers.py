import numpy as np
from support.memory_dataset import MemoryDataset

from stillmotion.data.datasets.wrappers import ConcatDataset, FrozenFrameDataset, Subset, generation_settings
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset


def test_a_subset_keeps_names_videos_and_labels():
    whole = SyntheticDataset(SyntheticConfig(num_videos=6))
    some = Subset(whole, np.array([4, 2]))
    assert [len(some), some.name(0), some.name(1)] == [2, whole.name(4), whole.name(2)]
    assert np.array_equal(some.open_video(1).get_frames([0]), whole.open_video(2).get_frames([0]))
    assert some.labels["shape"].tolist() == whole.labels["shape"][[4, 2]].tolist()
    assert some.classes == whole.classes


def test_videos_without_labels_stay_without():
    some = Subset(MemoryDataset({"n0": None, "n1": None}), np.array([1]))
    assert some.labels == {}
    assert some.name(0) == "n1"


def test_a_frozen_video_repeats_its_middle_frame():
    whole = SyntheticDataset(SyntheticConfig(num_videos=2, num_frames=7))
    still = FrozenFrameDataset(whole)
    video = still.open_video(1)
    assert (len(still), len(video), video.fps, still.name(1)) == (2, 7, whole.open_video(1).fps, whole.name(1))
    assert np.array_equal(video.get_frames([0, 6]), np.repeat(whole.open_video(1).get_frames([3]), 2, axis=0))
    assert still.labels is whole.labels
    some = Subset(ConcatDataset([still, whole]), np.array([0]))
    assert generation_settings(some) == ["middle frame", whole.config]
