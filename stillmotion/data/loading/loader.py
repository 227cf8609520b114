"""`ClipLoader` and evaluation loaders; batches do not depend on workers, ranks or the first step."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.collate import Batch, BatchCollator, SampleDataset, SampleKey, log_warnings
from stillmotion.data.loading.sampler import EpochOrder
from stillmotion.data.loading.worker_pool import BatchWorkerPool, pin_batch
from stillmotion.errors import StillmotionError


def _do_nothing() -> None:
    pass


class ClipLoader:
    """Shuffled batches of a `TrainClipDataset`, for one of several ranks.

    Each global batch is split into contiguous parts, one per rank, so results do not depend on the number of processes.

    Args:
        dataset: The data set.
        batch_size: Number of videos per batch and rank.
        rank: Index of this process.
        world_size: Number of processes.
        seed: Seed; with the epoch it determines the order.
        num_workers: Number of decoding worker processes, started once; 0 decodes in this process. A script that uses
            workers needs `if __name__ == "__main__":`.
        epoch_order: Order of the videos of an epoch; None shuffles all of them.

    Attributes:
        num_videos: Number of videos.
        steps_per_epoch: Number of batches of an epoch.
        on_wait: Callback while waiting for workers; an exception that it raises ends the epoch.
    """

    def __init__(
        self,
        dataset: TrainClipDataset,
        *,
        batch_size: int,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        num_workers: int = 0,
        epoch_order: EpochOrder | None = None,
    ) -> None:
        global_size = batch_size * world_size
        if len(dataset) < global_size:
            per_rank = f" ({batch_size} per process on {world_size} processes)" if world_size > 1 else ""
            raise StillmotionError(
                f"Batch size is {global_size}{per_rank} but there are only {len(dataset)} videos. "
                "Decrease --optim.batch-size or add videos."
            )
        self.num_videos = len(dataset)
        self.steps_per_epoch = len(dataset) // global_size
        self._batch_size, self._rank, self._world_size, self._seed = batch_size, rank, world_size, seed
        self._epoch_order = epoch_order or (lambda rng: rng.permutation(self.num_videos))
        self._batch_source = _BatchSource(dataset, num_workers)
        self.on_wait: Callable[[], object] = _do_nothing

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the running workers."""
        return self._batch_source.pool.pids if self._batch_source.pool else []

    def iter_epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, with clips (B, V, 3, T, S, S), as `BatchCollator` builds them.

        An epoch may be left early.

        Args:
            epoch: The epoch.
            start_step: First batch.
        """
        return self._batch_source(self._keys(epoch, start_step), self.on_wait)

    def _keys(self, epoch: int, start_step: int) -> Iterator[list[SampleKey]]:
        """Keys of the batches of this rank; they contain the epoch, because workers have copies of the data set."""
        order = self._epoch_order(np.random.default_rng((self._seed, epoch)))
        for step in range(start_step, self.steps_per_epoch):
            first = (step * self._world_size + self._rank) * self._batch_size
            yield [(epoch, int(index)) for index in order[first : first + self._batch_size]]


def iter_eval_batches(
    dataset: EvalClipDataset,
    *,
    batch_size: int,
    num_workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> Iterator[Batch]:
    """Yield every video once, in order: clips (B, K·crops, 3, T, S, S), index (B,), failed.

    Unreadable videos are left out; if none of a batch can be read, clips is an empty tensor. Truncated and short videos
    are logged.

    Args:
        dataset: The data set.
        batch_size: Number of videos per batch, B.
        num_workers: Number of decoding worker processes; 0 decodes in this process.
        rank: Index of this process, which reads every `world_size`-th video.
        world_size: Number of processes.
    """
    indices = range(rank, len(dataset), world_size)
    batches = [list(indices[i : i + batch_size]) for i in range(0, len(indices), batch_size)]
    return iter_batches(dataset, batches, num_videos=len(indices), num_workers=min(num_workers, len(batches)))


def iter_batches(
    dataset: SampleDataset,
    batch_keys: Iterable[Sequence[SampleKey]],
    *,
    num_videos: int,
    num_workers: int = 0,
) -> Iterator[Batch]:
    """Yield batches of the items with given keys, in order; truncated and short videos are logged.

    Args:
        dataset: The data set.
        batch_keys: Keys of the items of each batch; they are read a little ahead.
        num_videos: Number of videos in all, for the log.
        num_workers: Number of decoding worker processes; 0 decodes in this process.
    """
    return log_warnings(_BatchSource(dataset, num_workers)(batch_keys), num_videos=num_videos)


class _BatchSource:
    """Builds batches, in this process or in workers."""

    def __init__(self, dataset: SampleDataset, num_workers: int) -> None:
        self._collate = BatchCollator(dataset)
        self.pool = BatchWorkerPool(self._collate, num_workers) if num_workers > 0 else None

    def __call__(
        self, batch_keys: Iterable[Sequence[SampleKey]], on_wait: Callable[[], object] = _do_nothing
    ) -> Iterator[Batch]:
        if self.pool is not None:
            yield from self.pool.imap(batch_keys, on_wait=on_wait)
            return
        for keys in batch_keys:
            batch = self._collate(keys)
            yield pin_batch(batch) if torch.cuda.is_available() else batch
