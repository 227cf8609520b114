"""Videos of a few evenly spaced frames, played forward and backward."""

import numpy as np

from stillmotion.data.clips import Excerpt, in_time
from stillmotion.data.paths import Unlabelled, VideoSet
from stillmotion.data.video import Video
from stillmotion.errors import StillmotionError


class Played(Unlabelled):
    """Every video of a set as `frames` evenly spaced frames.

    both: after each video comes its reverse, the same frames in the opposite order: video i is 2·i, its reverse
        2·i + 1. A video of fewer frames shows some of them again.
    """

    def __init__(self, videos: VideoSet, *, frames: int, both: bool = False) -> None:
        if frames < 2:
            raise StillmotionError(f"{frames} frames have no order; take at least 2 (--frames)")
        self.videos, self.count, self.both = videos, frames, both

    def __len__(self) -> int:
        return len(self.videos) * (1 + self.both)

    def video(self, i: int) -> Video:
        number, backward = divmod(i, 2) if self.both else (i, 0)
        video = self.videos.video(number)
        places = in_time(video, spread(len(video), self.count))
        return Excerpt(video, places[::-1] if backward else places)

    def name(self, i: int) -> str:
        number, backward = divmod(i, 2) if self.both else (i, 0)
        return self.videos.name(number) + (" reversed" if backward else "")


def spread(length: int, frames: int) -> np.ndarray:
    """The middle frames of so many equal parts of a video, as numbers that lie alike from both ends.

    Parts that differed would tell the direction by themselves, and so would a first frame that is always a key frame.
    """
    middles = (np.arange((frames + 1) // 2) + 0.5) * length / frames - 0.5
    first = np.floor(middles + 0.5).astype(np.int64)
    return np.concatenate([first, (length - 1 - first[::-1])[frames % 2 :]])
