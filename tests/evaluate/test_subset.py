import numpy as np

from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.evaluate.subset import Subset


def test_a_subset_keeps_names_videos_and_labels():
    whole = SyntheticSet(SyntheticConfig(videos=6))
    some = Subset(whole, np.array([4, 2]))
    assert [len(some), some.name(0), some.name(1)] == [2, whole.name(4), whole.name(2)]
    assert np.array_equal(some.video(1).frames([0]), whole.video(2).frames([0]))
    assert some.labels["shape"].tolist() == whole.labels["shape"][[4, 2]].tolist()
    assert some.classes == whole.classes


def test_videos_without_labels_stay_without():
    class Bare:
        def __len__(self):
            return 3

        def name(self, i):
            return f"n{i}"

        def video(self, i):
            raise NotImplementedError

    some = Subset(Bare(), np.array([1]))
    assert some.labels == {}
    assert some.name(0) == "n1"
