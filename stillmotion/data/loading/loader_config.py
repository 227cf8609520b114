"""`LoaderConfig` (batch size, workers) and the core count; imports no torch."""

import os
from dataclasses import dataclass

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.data.datasets.wrappers import generation_settings
from stillmotion.distributed.torchrun import local_world_size
from stillmotion.errors import StillmotionError
from stillmotion.utils.option_types import NumWorkers

_SMALL_DATASET_SIZE = 64  # videos that are decoded before workers would have started


def num_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class LoaderConfig:
    """How videos are read; results do not depend on it.

    Attributes:
        batch_size: Number of videos decoded and embedded at a time. Does not change the results.
        num_workers: Number of decoding worker processes. -1 uses one per CPU core, and none for small or synthetic
            data sets.
    """

    batch_size: int = 16
    num_workers: NumWorkers = -1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise StillmotionError(f"batch_size is {self.batch_size}; must be at least 1")
        if self.num_workers < -1:
            raise StillmotionError(f"num_workers is {self.num_workers}; must be at least -1")

    def resolve_num_workers(self, dataset: VideoDataset) -> int:
        """Number of workers for a data set; the ranks on a machine share its cores."""
        if self.num_workers >= 0:
            return self.num_workers
        if len(dataset) <= _SMALL_DATASET_SIZE or generation_settings(dataset):
            return 0
        return max(1, num_cores() // local_world_size())
