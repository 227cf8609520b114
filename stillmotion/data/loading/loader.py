"""Batches of clips: the same ones in the same order whatever the workers, the ranks or the step one starts at."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch

from stillmotion.data.loading.clip_dataset import EvalClipDataset, TrainClipDataset
from stillmotion.data.loading.collate import Batch, BatchCollator, SampleDataset, SampleKey, log_warnings
from stillmotion.data.loading.collate import print_message as to_stderr
from stillmotion.data.loading.sampler import EpochOrder
from stillmotion.data.loading.worker_pool import BatchWorkerPool, pin_batch
from stillmotion.errors import StillmotionError


def _do_nothing() -> None:
    pass


class ClipLoader:
    """Shuffled batches of a TrainClipDataset, for one rank of several.

    batch_size: per rank. rank, world: this process and how many there are. Each global batch of batch·world videos is cut
    into contiguous parts, so that the ranks together see what one process with the joined batch would.
    seed: with the epoch it fixes the order.
    num_workers: processes, started once; 0 loads in this one. A script that asks for some guards its main module.
    drop_last: False completes the last batch with the first videos of the epoch.
    epoch_order: by which an epoch's videos are shuffled; None shuffles all at once.
    on_wait: may be set; called now and then while workers are waited for. What it raises ends the epoch.
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
        drop_last: bool = True,
        epoch_order: EpochOrder | None = None,
    ) -> None:
        whole = batch_size * world_size
        if len(dataset) < whole:
            each = f"{batch_size} per process on {world_size} processes" if world_size > 1 else f"{batch_size}"
            raise StillmotionError(
                f"{len(dataset)} videos are fewer than a batch of {whole} ({each}); lower --optim.batch-size or add videos"
            )
        self.num_videos = len(dataset)
        self.steps_per_epoch = len(dataset) // whole if drop_last else -(-len(dataset) // whole)
        self._batch_size, self._rank, self._world_size, self._seed = batch_size, rank, world_size, seed
        self._epoch_order = epoch_order or (lambda rng: rng.permutation(self.num_videos))
        self._batch_source = _BatchSource(dataset, num_workers)
        self.on_wait: Callable[[], object] = _do_nothing

    @property
    def worker_pids(self) -> list[int]:
        """Of the workers that are running."""
        return self._batch_source.pool.pids if self._batch_source.pool else []

    def iter_epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start_step` on.

        Each is clips (B, V, 3, T, S, S), index (B,) of the videos shown, broken: name and reason of those that could
        not be, and what else `BatchMaker` says. An epoch that is left early may be followed by any other.
        """
        return self._batch_source(self._keys(epoch, start_step), self.on_wait)

    def _keys(self, epoch: int, start_step: int) -> Iterator[list[SampleKey]]:
        """Of this rank's batches; the epoch travels in them, since workers hold copies."""
        order = self._epoch_order(np.random.default_rng((self._seed, epoch)))
        for step in range(start_step, self.steps_per_epoch):
            first = (step * self._world_size + self._rank) * self._batch_size
            yield [(epoch, int(order[i % self.num_videos])) for i in range(first, first + self._batch_size)]


def iter_eval_batches(
    dataset: EvalClipDataset,
    *,
    batch_size: int,
    num_workers: int = 0,
    rank: int = 0,
    world_size: int = 1,
    say: Callable[[str], object] = to_stderr,
) -> Iterator[Batch]:
    """Every world-th video from `rank` on, once, in order: clips (B, K·crops, 3, T, S, S), index (B,), broken.

    B is smaller where videos were unreadable; where none of a batch could be read, clips is an empty tensor.
    say: told which videos can be read in part, and how many are short.
    """
    indices = range(rank, len(dataset), world_size)
    batches = [list(indices[i : i + batch_size]) for i in range(0, len(indices), batch_size)]
    return iter_batches(dataset, batches, num_videos=len(indices), num_workers=min(num_workers, len(batches)), say=say)


def iter_batches(
    dataset: SampleDataset,
    batch_keys: Iterable[Sequence[SampleKey]],
    *,
    num_videos: int,
    num_workers: int = 0,
    say: Callable[[str], object] = to_stderr,
) -> Iterator[Batch]:
    """Batches of a data set's items with these keys, in order, as `BatchMaker` makes them.

    batch_keys: keys of each batch, taken a little ahead. videos: how many they are of. say: as in `eval_loader`.
    """
    return log_warnings(_BatchSource(dataset, num_workers)(batch_keys), num_videos=num_videos, say=say)


class _BatchSource:
    """Makes batches, in this process or in several others."""

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
