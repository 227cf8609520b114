"""How videos are read: how many at a time, by how many processes."""

import os
from dataclasses import dataclass

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import generation_settings
from stillmotion.distributed.torchrun import local_world_size
from stillmotion.errors import StillmotionError
from stillmotion.utils.option_types import NumWorkers

_SMALL_DATASET_SIZE = 64  # videos that are read before decoding processes would have started


def num_cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class LoaderConfig:
    """How videos are read; what is computed does not depend on it.

    Attributes:
        batch_size: videos at a time.
        num_workers: decoding processes; -1 is one per core, and none for a few videos or drawn ones.
    """

    batch_size: int = 16
    num_workers: NumWorkers = -1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.num_workers < -1:
            raise StillmotionError(
                f"batch is {self.batch_size} and workers {self.num_workers}; they start at 1 and at -1"
            )

    def resolve_num_workers(self, dataset: VideoDataset) -> int:
        """How many processes read these videos for this one; processes of a machine share its cores."""
        if self.num_workers >= 0:
            return self.num_workers
        return (
            0
            if len(dataset) <= _SMALL_DATASET_SIZE or generation_settings(dataset)
            else max(1, num_cores() // local_world_size())
        )
