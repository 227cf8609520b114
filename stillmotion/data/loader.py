"""Batches of clips: the same ones in the same order whatever the workers, the ranks or the step one starts at."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from stillmotion.data.augment import Augment, CenterCrops
from stillmotion.data.batches import Batch, BatchMaker, Items, Key
from stillmotion.data.clips import at_rate, is_short, random_clips, read_clips, uniform_clips
from stillmotion.data.notes import say as to_stderr
from stillmotion.data.notes import told
from stillmotion.data.order import Order
from stillmotion.data.paths import Broken, VideoSet
from stillmotion.data.pool import Decoders, pinned
from stillmotion.errors import StillmotionError, VideoError

_STAND_IN = 1  # apart from other draws with the same numbers


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class ClipDataset:
    """Random augmented clips: item (epoch, index) → clips (V, 3, T, S, S), index, broken, short.

    videos: where they come from. frames (T), stride, clips (V): what is taken of each. fps: as for `at_rate`.
    augment: frames uint8 (T, H, W, 3), rng → float (3, T, S, S).
    seed: with epoch and index it fixes everything that is drawn.
    strict: an unreadable video raises. Otherwise one by chance stands in for it, and `broken` names it.
    finish: False leaves clips as uint8, with `changes` (V, 11), which `Augment.finish` makes the rest of on a device.
    """

    videos: VideoSet
    frames: int
    stride: int
    clips: int
    augment: Augment | Callable[[np.ndarray, np.random.Generator], torch.Tensor]
    seed: int = 0
    strict: bool = False
    fps: float = 0.0
    finish: bool = True

    def __len__(self) -> int:
        return len(self.videos)

    def __getitem__(self, key: int | tuple[int, int]) -> Batch:
        epoch, index = (0, key) if isinstance(key, int) else key
        broken: Broken = []
        for used in self._candidates(epoch, index):
            rng = np.random.default_rng((self.seed, epoch, used))
            try:
                return self.item(used, rng) | {"index": used, "broken": broken}
            except VideoError as error:
                if self.strict:
                    raise
                broken.append((self.videos.name(used), str(error)))
        name, reason = broken[0]
        raise StillmotionError(f"none of the {len(self)} videos can be read; the first, {name}: {reason}")

    def _candidates(self, epoch: int, index: int) -> Iterator[int]:
        """The video itself and, if it is not to be, others by chance: neighbours are often broken together."""
        yield index
        order = np.random.default_rng((self.seed, epoch, index, _STAND_IN)).permutation(len(self))
        yield from (int(other) for other in order if other != index)

    def item(self, index: int, rng: np.random.Generator) -> Batch:
        """What is drawn of a video, or VideoError."""
        video = at_rate(self.videos.video(index), self.fps)
        views = read_clips(video, self.numbers(len(video), rng))
        short = is_short(len(video), frames=self.frames, stride=self.stride)
        if self.finish or not isinstance(self.augment, Augment):
            return {"clips": torch.stack([self.augment(view, rng) for view in views]), "short": short}
        clips, changes = zip(*(self.augment.begin(view, rng) for view in views), strict=True)
        return {"clips": torch.stack(clips), "changes": np.stack(changes), "short": short}

    def numbers(self, length: int, rng: np.random.Generator) -> np.ndarray:
        """The frames (V, T) that are taken of a video of this length."""
        return random_clips(length, frames=self.frames, stride=self.stride, clips=self.clips, rng=rng)


@dataclass(frozen=True)
class EvalDataset:
    """Evenly spaced clips for evaluation: index → clips (K·crops, 3, T, S, S), index, broken, short.

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
        short = is_short(len(video), frames=self.frames, stride=self.stride)
        return {"clips": torch.cat([self.crop(view) for view in read_clips(video, numbers)]), "short": short}


class ClipLoader:
    """Shuffled batches of a ClipDataset, for one rank of several.

    batch: per rank. rank, world: this process and how many there are. Each global batch of batch·world videos is cut
    into contiguous parts, so that the ranks together see what one process with the joined batch would.
    seed: with the epoch it fixes the order.
    workers: processes, started once; 0 loads in this one. A script that asks for some guards its main module.
    drop_last: False completes the last batch with the first videos of the epoch.
    order: by which an epoch's videos are shuffled; None shuffles all at once.
    meanwhile: may be set; called now and then while workers are waited for. What it raises ends the epoch.
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
        order: Order | None = None,
    ) -> None:
        whole = batch * world
        if len(dataset) < whole:
            each = f"{batch} per process on {world} processes" if world > 1 else f"{batch}"
            raise StillmotionError(
                f"{len(dataset)} videos are fewer than a batch of {whole} ({each}); lower --optim.batch or add videos"
            )
        self.videos = len(dataset)
        self.steps_per_epoch = len(dataset) // whole if drop_last else -(-len(dataset) // whole)
        self._batch, self._rank, self._world, self._seed = batch, rank, world, seed
        self._order = order or (lambda rng: rng.permutation(self.videos))
        self._maker = _Maker(dataset, workers)
        self.meanwhile: Callable[[], object] = _nothing

    @property
    def pids(self) -> list[int]:
        """Of the workers that are running."""
        return self._maker.decoders.pids if self._maker.decoders else []

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start_step` on.

        Each is clips (B, V, 3, T, S, S), index (B,) of the videos shown, broken: name and reason of those that could
        not be, and what else `BatchMaker` says. An epoch that is left early may be followed by any other.
        """
        return self._maker(self._keys(epoch, start_step), self.meanwhile)

    def _keys(self, epoch: int, start_step: int) -> Iterator[list[Key]]:
        """Of this rank's batches; the epoch travels in them, since workers hold copies."""
        order = self._order(np.random.default_rng((self._seed, epoch)))
        for step in range(start_step, self.steps_per_epoch):
            first = (step * self._world + self._rank) * self._batch
            yield [(epoch, int(order[i % self.videos])) for i in range(first, first + self._batch)]


def eval_loader(
    dataset: EvalDataset,
    *,
    batch: int,
    workers: int = 0,
    rank: int = 0,
    world: int = 1,
    say: Callable[[str], object] = to_stderr,
) -> Iterator[Batch]:
    """Every world-th video from `rank` on, once, in order: clips (B, K·crops, 3, T, S, S), index (B,), broken.

    B is smaller where videos were unreadable; where none of a batch could be read, clips is an empty tensor.
    say: told which videos can be read in part, and how many are short.
    """
    indices = range(rank, len(dataset), world)
    batches = [list(indices[i : i + batch]) for i in range(0, len(indices), batch)]
    return keyed_loader(dataset, batches, videos=len(indices), workers=min(workers, len(batches)), say=say)


def keyed_loader(
    dataset: Items,
    asked: Iterable[Sequence[Key]],
    *,
    videos: int,
    workers: int = 0,
    say: Callable[[str], object] = to_stderr,
) -> Iterator[Batch]:
    """Batches of a data set's items with these keys, in order, as `BatchMaker` makes them.

    asked: keys of each batch, taken a little ahead. videos: how many they are of. say: as in `eval_loader`.
    """
    return told(_Maker(dataset, workers)(asked), videos=videos, say=say)


class _Maker:
    """Makes batches, in this process or in several others."""

    def __init__(self, dataset: Items, workers: int) -> None:
        self._make = BatchMaker(dataset)
        self.decoders = Decoders(self._make, workers) if workers > 0 else None

    def __call__(self, asked: Iterable[Sequence[Key]], meanwhile: Callable[[], object] = _nothing) -> Iterator[Batch]:
        if self.decoders is not None:
            yield from self.decoders.batches(asked, meanwhile=meanwhile)
            return
        for keys in asked:
            batch = self._make(keys)
            yield pinned(batch) if torch.cuda.is_available() else batch
