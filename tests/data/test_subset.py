import numpy as np

from stillmotion.data.paths import Unlabelled
from stillmotion.data.subset import Joined, Stilled, Subset, drawings
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet


def test_a_subset_keeps_names_videos_and_labels():
    whole = SyntheticSet(SyntheticConfig(videos=6))
    some = Subset(whole, np.array([4, 2]))
    assert [len(some), some.name(0), some.name(1)] == [2, whole.name(4), whole.name(2)]
    assert np.array_equal(some.video(1).frames([0]), whole.video(2).frames([0]))
    assert some.labels["shape"].tolist() == whole.labels["shape"][[4, 2]].tolist()
    assert some.classes == whole.classes


def test_videos_without_labels_stay_without():
    class Bare(Unlabelled):
        def __len__(self):
            return 3

        def name(self, i):
            return f"n{i}"

        def video(self, i):
            raise NotImplementedError

    some = Subset(Bare(), np.array([1]))
    assert some.labels == {}
    assert some.name(0) == "n1"


def test_a_stilled_video_is_its_middle_frame_and_says_so():
    whole = SyntheticSet(SyntheticConfig(videos=2, length=7))
    still = Stilled(whole)
    video = still.video(1)
    assert (len(still), len(video), video.fps, still.name(1)) == (2, 7, whole.video(1).fps, whole.name(1))
    assert np.array_equal(video.frames([0, 6]), np.repeat(whole.video(1).frames([3]), 2, axis=0))
    assert still.labels is whole.labels
    some = Subset(Joined([still, whole]), np.array([0]))
    assert drawings(some) == ["middle frame", whole.config]
