"""How videos are read: how many at a time, by how many processes."""

import os
from dataclasses import dataclass

from stillmotion.data.paths import VideoSet
from stillmotion.data.subset import drawings
from stillmotion.errors import StillmotionError
from stillmotion.options import Workers
from stillmotion.parent import ranks_here

_FEW = 64  # videos that are read before decoding processes would have started


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Reading:
    """How videos are read; what is computed does not depend on it.

    Attributes:
        batch: videos at a time.
        workers: decoding processes; -1 is one per core, and none for a few videos or drawn ones.
    """

    batch: int = 16
    workers: Workers = -1

    def __post_init__(self) -> None:
        if self.batch < 1 or self.workers < -1:
            raise StillmotionError(f"batch is {self.batch} and workers {self.workers}; they start at 1 and at -1")

    def decoders(self, videos: VideoSet) -> int:
        """How many processes read these videos for this one; processes of a machine share its cores."""
        if self.workers >= 0:
            return self.workers
        return 0 if len(videos) <= _FEW or drawings(videos) else max(1, cores() // ranks_here())
