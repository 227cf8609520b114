"""Batches of clips: the same ones in the same order whatever the workers, the ranks or the step one starts at."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from stillmotion.data.augment import Augment, CenterCrops
from stillmotion.data.clips import at_rate, random_clips, read_clips, uniform_clips
from stillmotion.data.paths import Broken, VideoSet
from stillmotion.data.workers import process_context, start_worker
from stillmotion.errors import StillmotionError, VideoError

Batch = dict[str, Any]


@dataclass(frozen=True)
class ClipDataset(Dataset[Batch]):
    """Random augmented clips: item (epoch, index) → clips (V, 3, T, S, S), index, broken.

    videos: where they come from. frames (T), stride, clips (V): what is taken of each. fps: as for `at_rate`.
    augment: frames uint8 (T, H, W, 3), rng → float (3, T, S, S).
    seed: with epoch and index it fixes everything that is drawn.
    strict: an unreadable video raises. Otherwise the next readable one stands in for it, and `broken` names it.
    """

    videos: VideoSet
    frames: int
    stride: int
    clips: int
    augment: Augment | Callable[[np.ndarray, np.random.Generator], torch.Tensor]
    seed: int = 0
    strict: bool = False
    fps: float = 0.0

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, key: int | tuple[int, int]) -> Batch:
        epoch, index = (0, key) if isinstance(key, int) else key
        broken: Broken = []
        for step in range(len(self)):
            used = (index + step) % len(self)
            rng = np.random.default_rng((self.seed, epoch, used))
            try:
                return self.item(used, rng) | {"index": used, "broken": broken}
            except VideoError as error:
                if self.strict:
                    raise
                broken.append((self.videos.name(used), str(error)))
        name, reason = broken[0]
        raise StillmotionError(f"none of the {len(self)} videos can be read; the first, {name}: {reason}")

    def item(self, index: int, rng: np.random.Generator) -> Batch:
        """What is drawn of a video, or VideoError."""
        video = at_rate(self.videos.video(index), self.fps)
        views = read_clips(video, self.numbers(len(video), rng))
        return {"clips": torch.stack([self.augment(view, rng) for view in views])}

    def numbers(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """The frames (V, T) that are taken of a video of this length."""
        return random_clips(length, frames=self.frames, stride=self.stride, clips=self.clips, rng=rng)


@dataclass(frozen=True)
class EvalDataset(Dataset[Batch]):
    """Evenly spaced clips for evaluation: index → clips (K·crops, 3, T, S, S), index, broken.

    clips (K): per video. crop: how a clip is cut and normalised. fps: as for `at_rate`.
    An unreadable video has clips None, which `eval_loader` leaves out of its batches.
    """

    videos: VideoSet
    frames: int
    stride: int
    clips: int
    crop: CenterCrops
    strict: bool = False
    fps: float = 0.0

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, index: int) -> Batch:
        try:
            return self.item(index) | {"index": index, "broken": []}
        except VideoError as error:
            if self.strict:
                raise
            return {"clips": None, "index": index, "broken": [(self.videos.name(index), str(error))]}

    def item(self, index: int) -> Batch:
        """What is taken of a video, or VideoError."""
        video = at_rate(self.videos.video(index), self.fps)
        numbers = uniform_clips(len(video), frames=self.frames, stride=self.stride, clips=self.clips)
        return {"clips": torch.cat([self.crop(view) for view in read_clips(video, numbers)])}


class ClipLoader:
    """Shuffled batches of a ClipDataset, for one rank of several.

    batch: per rank. rank, world: this process and how many there are. Each global batch of batch·world videos is cut
    into contiguous parts, so that the ranks together see what one process with the joined batch would.
    seed: with the epoch it fixes the order.
    workers: processes, started once; 0 loads in this one. A script that asks for some guards its main module.
    drop_last: False completes the last batch with the first videos of the epoch.
    """

    def __init__(
        self,
        dataset: ClipDataset,
        *,
        batch: int,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        workers: int = 0,
        drop_last: bool = True,
    ) -> None:
        whole = batch * world
        if len(dataset) < whole:
            each = f"{batch} per process on {world} processes" if world > 1 else f"{batch}"
            raise StillmotionError(
                f"{len(dataset)} videos are fewer than a batch of {whole} ({each}); lower the batch or add videos"
            )
        self.steps_per_epoch = len(dataset) // whole if drop_last else -(-len(dataset) // whole)
        self._order = _Order(len(dataset), self.steps_per_epoch, batch, rank, world, seed)
        self._loader = _data_loader(dataset, batches=self._order, workers=workers)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start_step` on.

        Each is clips (B, V, 3, T, S, S), index (B,) of the videos shown, and broken: name and reason of those
        that could not be. An epoch that is left early may be followed by any other.
        """
        self._order.epoch, self._order.start = epoch, start_step
        return _iterate(self._loader)


def eval_loader(
    dataset: EvalDataset, *, batch: int, workers: int = 0, rank: int = 0, world: int = 1
) -> Iterator[Batch]:
    """Every world-th video from `rank` on, once, in order: clips (B, K·crops, 3, T, S, S), index (B,), broken.

    B is smaller where videos were unreadable; where none of a batch could be read, clips is an empty tensor.
    """
    indices = range(rank, len(dataset), world)
    batches = [list(indices[i : i + batch]) for i in range(0, len(indices), batch)]
    return _iterate(_data_loader(dataset, batches=batches, workers=workers, persistent=False))


class _Order(Sampler[list[tuple[int, int]]]):
    """The (epoch, index) keys of this rank's batches; the epoch travels in them, since workers hold copies."""

    def __init__(self, videos: int, steps: int, batch: int, rank: int, world: int, seed: int) -> None:
        self.videos, self.steps, self.batch, self.rank, self.world, self.seed = (
            videos,
            steps,
            batch,
            rank,
            world,
            seed,
        )
        self.epoch = self.start = 0

    def __len__(self) -> int:
        return self.steps - self.start

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.videos)
        for step in range(self.start, self.steps):
            first = (step * self.world + self.rank) * self.batch
            yield [(self.epoch, int(order[i % self.videos])) for i in range(first, first + self.batch)]


def _data_loader(
    dataset: Dataset[Batch], *, batches: Any, workers: int, persistent: bool = True
) -> DataLoader[Batch | StillmotionError]:
    options: dict[str, Any] = {}
    if workers > 0:
        options = {
            "multiprocessing_context": process_context(),
            "persistent_workers": persistent,
            "prefetch_factor": 3,
            "worker_init_fn": start_worker,
        }
    with _any_number_of_workers():
        return DataLoader(
            _Caught(dataset),
            batch_sampler=batches,
            num_workers=workers,
            collate_fn=_collate,
            pin_memory=torch.cuda.is_available(),
            **options,
        )


@contextmanager
def _any_number_of_workers() -> Iterator[None]:
    """More workers than cores is the caller's choice, and no reason for a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create", category=UserWarning)
        yield


class _Caught(Dataset[Batch | StillmotionError]):
    """The items of a data set, or what a user can mend: raised in a worker, it would end in a traceback's text."""

    def __init__(self, dataset: Dataset[Batch]) -> None:
        self.dataset = dataset

    def __getitem__(self, key: Any) -> Batch | StillmotionError:
        try:
            return self.dataset[key]
        except StillmotionError as error:
            return error


def _iterate(loader: DataLoader[Batch | StillmotionError]) -> Iterator[Batch]:
    with _any_number_of_workers():
        batches = iter(loader)
    return map(_raised, batches)


def _raised(batch: Batch | StillmotionError) -> Batch:
    if isinstance(batch, StillmotionError):
        raise batch
    return batch


def _collate(items: Sequence[Batch | StillmotionError]) -> Batch | StillmotionError:
    for item in items:
        if isinstance(item, StillmotionError):
            return item
    return _joined([item for item in items if not isinstance(item, StillmotionError)])


def _joined(items: Sequence[Batch]) -> Batch:
    readable = [item for item in items if item["clips"] is not None]
    others = [key for key in (readable[0] if readable else {}) if key not in ("clips", "index", "broken")]
    return {key: [item[key] for item in readable] for key in others} | {
        "clips": torch.stack([item["clips"] for item in readable]) if readable else torch.empty(0),
        "index": torch.tensor([item["index"] for item in readable], dtype=torch.long),
        "broken": [entry for item in items for entry in item["broken"]],
    }
