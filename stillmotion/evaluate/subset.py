"""Some videos of a set, renumbered."""

from collections.abc import Mapping, Sequence

import numpy as np

from stillmotion.data.paths import VideoSet
from stillmotion.data.video import Video


class Subset:
    """The videos of a set that have these numbers, with their labels.

    chosen: (n,) ints; video i of the subset is video chosen[i] of the set.
    """

    def __init__(self, videos: VideoSet, chosen: np.ndarray) -> None:
        self.videos = videos
        self.chosen = chosen
        labels: Mapping[str, np.ndarray] = getattr(videos, "labels", {})
        self.labels = {target: y[chosen] for target, y in labels.items()}
        self.classes: Mapping[str, Sequence[str]] = getattr(videos, "classes", {})

    def __len__(self) -> int:
        return len(self.chosen)

    def video(self, i: int) -> Video:
        return self.videos.video(int(self.chosen[i]))

    def name(self, i: int) -> str:
        return self.videos.name(int(self.chosen[i]))
