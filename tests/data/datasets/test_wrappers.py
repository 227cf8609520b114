import numpy as np
from support.memory_dataset import MemoryDataset

from stillmotion.data.datasets.wrappers import ConcatDataset, FrozenFrameDataset, Subset, generation_settings
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset


def test_a_subset_keeps_names_videos_and_labels():
    videos = SyntheticDataset(SyntheticConfig(num_videos=6))
    subset = Subset(videos, np.array([4, 2]))
    assert [len(subset), subset.name(0), subset.name(1)] == [2, videos.name(4), videos.name(2)]
    assert np.array_equal(subset.open_video(1).get_frames([0]), videos.open_video(2).get_frames([0]))
    assert subset.labels["shape"].tolist() == videos.labels["shape"][[4, 2]].tolist()
    assert subset.classes == videos.classes


def test_videos_without_labels_stay_without():
    subset = Subset(MemoryDataset({"n0": None, "n1": None}), np.array([1]))
    assert subset.labels == {}
    assert subset.name(0) == "n1"


def test_a_frozen_video_repeats_its_middle_frame():
    videos = SyntheticDataset(SyntheticConfig(num_videos=2, num_frames=7))
    frozen = FrozenFrameDataset(videos)
    video = frozen.open_video(1)
    assert (len(frozen), len(video), video.fps, frozen.name(1)) == (2, 7, videos.open_video(1).fps, videos.name(1))
    assert np.array_equal(video.get_frames([0, 6]), np.repeat(videos.open_video(1).get_frames([3]), 2, axis=0))
    assert frozen.labels is videos.labels
    subset = Subset(ConcatDataset([frozen, videos]), np.array([0]))
    assert generation_settings(subset) == ["middle frame", videos.config]
