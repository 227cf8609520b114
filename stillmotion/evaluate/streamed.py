"""The linear probe of the papers: a new clip of each training video in every epoch, whose features pass and are gone.

Memory is that of a few clips, whatever the set.

Shapes: n videos of a step, D channels of all kinds together.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from stillmotion import distributed
from stillmotion.data.augment import Augment, CenterCrops
from stillmotion.data.batches import Key
from stillmotion.data.loader import ClipDataset, keyed_loader
from stillmotion.data.paths import Broken, VideoSet
from stillmotion.data.reading import Reading
from stillmotion.encoders import Encoder, Features, Kind, Progress
from stillmotion.encoders.features import Views, blocks_in, centre_crops, embedded, held, join, parts_of
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.evaluate.linear import ProbeResult, Ranks, ranks_of
from stillmotion.evaluate.sgd import STATE, Classifiers, Sgd
from stillmotion.evaluate.stored import restore, store
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.nn.intake import Intake

_PAUSE = 60.0  # seconds from one writing of the classifiers to the next, at least
_ORDER = 31  # what a generator is for, beside seed and epoch
# A square of size pixels of a shorter edge of 256 to 320 for 224: so much of a frame of 4:3.
_AREA = (0.37, 0.57)


class Streamed(NamedTuple):
    """Accuracies by kind and target, and name and reason of the training and of the test videos that are unreadable."""

    accuracy: dict[Kind, dict[str, ProbeResult]]
    train_broken: dict[str, str]
    test_broken: dict[str, str]


def streamed_probe(
    encoder: Encoder,
    train: VideoSet,
    test: VideoSet,
    views: Views,
    *,
    kinds: Sequence[Kind],
    seed: int = 0,
    rule: Sgd | None = None,
    kept: Path | None = None,
    reading: Reading | None = None,
    say: Callable[[str], object] = to_stderr,
    progress: Progress | None = None,
) -> Streamed:
    """Train a linear classifier for each kind of feature and each target, all by the same passes, and test them.

    views: of a test video, told by the mean of their probabilities, and the precision of all. A training video shows
        one random clip in an epoch, cropped and mirrored by chance, as (seed, epoch, video) has it.
    kinds: of which those that the encoder has are asked.
    kept: a file for the classifiers, written between epochs, which the same call goes on from if it is ended before
        its time; it is removed at the end. say: told where it is damaged.
    Ranks share each step's videos, and each learns from the features of all: the classifiers are those of one process.
    """
    rule, reading = rule or Sgd(), reading or Reading()
    asked = _Asked(train, test)
    total = rule.epochs * len(train) + len(test)
    course = _Course(kept, rule, asked.counts, say)
    learners, broken = course.learners, course.broken
    for step in _steps(encoder, train, views, kinds, seed, rule, reading, start=course.epochs):
        course.reach(step.epoch)
        for kind, x in step.features.items():
            if kind not in learners:
                learners[kind] = Classifiers(x.shape[1], asked.counts, rule)
            learners[kind].learn(x, asked.train[step.videos], epoch=step.epoch)
        broken |= dict(step.broken)
        if progress is not None:
            progress(round(step.epoch * len(train)), total)
    course.reach(rule.epochs)
    so_far = len(train) * rule.epochs
    tell = None if progress is None else lambda done: progress(so_far + done, total)
    ranks, test_broken = _tested(encoder, test, views, learners, asked, reading, tell)
    every = {name: reason for some in distributed.gather_objects(broken) for name, reason in some.items()}
    course.end()
    found = {
        kind: {target: Ranks(of, None).result() for target, of in by_target.items()}
        for kind, by_target in ranks.items()
    }
    return Streamed(found, every, test_broken)


class _Asked:
    """The labels of both halves.

    classes: of each target, those that training videos have. train: (videos, targets), their places among these, -1
    where unknown. counts: how many there are.
    """

    def __init__(self, train: VideoSet, test: VideoSet) -> None:
        self.classes: dict[str, np.ndarray] = {}
        columns = []
        for target, y in train.labels.items():
            for name, labels in (("training", y), ("test", test.labels[target])):
                if not (labels >= 0).any():
                    raise StillmotionError(
                        f"none of the {len(labels)} {name} videos has a label {target}; a probe needs labels on both "
                        "sides"
                    )
            known = np.unique(y[y >= 0])
            if len(known) < 2:
                raise StillmotionError(
                    f"all training videos have the same {target}; a probe needs at least two classes"
                )
            self.classes[target] = known
            columns.append(np.where(y >= 0, np.searchsorted(known, y), -1))
        self.train = torch.from_numpy(np.stack(columns, 1))
        self.test = test.labels
        self.counts = [len(known) for known in self.classes.values()]


class _Step(NamedTuple):
    """What all ranks saw at a step: features (n, D) by kind, numbers of the videos (n,); epoch: how far it begins."""

    features: dict[Kind, Tensor]
    videos: Tensor
    epoch: float
    broken: Broken


def _steps(
    encoder: Encoder,
    train: VideoSet,
    views: Views,
    kinds: Sequence[Kind],
    seed: int,
    rule: Sgd,
    reading: Reading,
    *,
    start: int,
) -> Iterator[_Step]:
    """The steps from the epoch `start` on, which is what they would be had those before been taken."""
    rank, world = distributed.rank(), distributed.world()
    if min(len(train), rule.batch) < world:
        raise StillmotionError(
            f"{len(train)} training videos, {rule.batch} a step, are fewer than {world} processes; start fewer"
        )
    size = min(reading.batch, held(encoder.survey, 1))
    steps = -(-len(train) // rule.batch)

    def shares() -> Iterator[tuple[int, int, list[np.ndarray]]]:
        """Epoch, step and the videos of each rank."""
        for epoch in range(start, rule.epochs):
            order = np.random.default_rng((seed, epoch, _ORDER)).permutation(len(train))
            for step in range(steps):
                yield epoch, step, np.array_split(order[step * rule.batch : (step + 1) * rule.batch], world)

    def keys() -> Iterator[Sequence[Key]]:
        for epoch, _, ranks in shares():
            own = ranks[rank].tolist()
            yield from ([(epoch, i) for i in own[first : first + size]] for first in range(0, len(own), size))

    workers = reading.decoders(train)
    batches = keyed_loader(_training_clips(encoder, train, seed), keys(), videos=len(train), workers=workers)
    widths: dict[Kind, int] = {}
    for epoch, step, ranks in shares():
        parts = [embedded(encoder, next(batches), views.precision) for _ in range(0, len(ranks[rank]), size)]
        found = join(parts)
        if not widths:
            widths = {kind: found.vector(kind).shape[-1] for kind in _there(found, kinds)}
        own = [found.vector(kind) if parts else np.empty((0, width), np.float32) for kind, width in widths.items()]
        counts = [len(some) for some in ranks]
        rows = distributed.gather_rows(torch.from_numpy(np.concatenate(own, 1)), counts)
        index = distributed.gather_rows(torch.from_numpy(found.index), counts)
        features = dict(zip(widths, rows.split(list(widths.values()), 1), strict=True))
        yield _Step(features, index, epoch + step / steps, found.broken)


class _Course:
    """The classifiers on their way, and where they go on after an end before their time. epochs: done before."""

    def __init__(self, file: Path | None, rule: Sgd, counts: Sequence[int], say: Callable[[str], object]) -> None:
        self._file, self._written = file, time.monotonic()
        self.learners: dict[Kind, Classifiers] = {}
        self.broken: dict[str, str] = {}
        self.epochs = 0
        found = distributed.on_first(lambda: restore(file, say=say)) if file else None
        if found is None:
            return
        self.epochs, self.broken = found.about["epochs"], found.about["broken"]
        for kind in found.about["kinds"]:
            state = {name: found.arrays[f"{kind}.{name}"] for name in STATE}
            self.learners[kind] = Classifiers(len(state["mean"]), counts, rule)
            self.learners[kind].resume(state)

    def reach(self, epoch: float) -> None:
        """Write them down where an epoch is over, now and then."""
        due = epoch == int(epoch) > self.epochs and time.monotonic() - self._written >= _PAUSE
        if self._file is None or distributed.rank() or not due:
            return
        arrays = {f"{kind}.{name}": x for kind, own in self.learners.items() for name, x in own.state().items()}
        about = {"epochs": int(epoch), "kinds": list(self.learners), "broken": self.broken}
        store(self._file, dict(sorted(arrays.items())), about)
        self._written = time.monotonic()

    def end(self) -> None:
        if self._file is not None and distributed.rank() == 0:
            self._file.unlink(missing_ok=True)


def _there(found: Features, kinds: Sequence[Kind]) -> Sequence[Kind]:
    return [kind for kind in kinds if kind in found.kinds] or kinds


def _training_clips(encoder: Encoder, train: VideoSet, seed: int) -> ClipDataset:
    return ClipDataset(train, **encoder.survey.sampling, clips=1, augment=_augment(encoder.survey), seed=seed)


def _augment(intake: Intake) -> "Augment | _Mirrored":
    """Scale, place and flip by chance; of frames that are shown entire the flip alone."""
    if intake.entire:
        return _Mirrored(centre_crops(intake))
    mean, std = intake.normalisation
    return Augment(intake.size, area=_AREA, ratio=(1.0, 1.0), jitter_p=0.0, gray=0.0, blur_p=0.0, mean=mean, std=std)


@dataclass(frozen=True)
class _Mirrored:
    """Frames as a test shows them, half of the time mirrored."""

    crop: CenterCrops

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> Tensor:
        return self.crop(clip[:, :, ::-1] if rng.random() < 0.5 else clip)[0]


def _tested(
    encoder: Encoder,
    test: VideoSet,
    views: Views,
    learners: Mapping[Kind, Classifiers],
    asked: _Asked,
    reading: Reading,
    tell: Callable[[int], object] | None,
) -> tuple[dict[Kind, dict[str, np.ndarray]], dict[str, str]]:
    """By kind and target the ranks of the labelled test videos' own classes, and the videos that are unreadable."""
    own: dict[Kind, dict[str, list[np.ndarray]]] = {kind: {t: [] for t in asked.classes} for kind in learners}
    broken: dict[str, str] = {}
    blocks = range(blocks_in(test))[distributed.rank() :: distributed.world()]
    done = 0
    for _, part in parts_of(encoder, test, views, blocks=blocks, reading=reading):
        broken |= dict(part.broken)
        done += len(part.index) + len(part.broken)
        if tell is not None:
            tell(min(done * distributed.world(), len(test)))
        if len(part.index) == 0:
            continue
        for kind, learner in learners.items():
            shares = learner.probabilities(torch.from_numpy(part.vector(kind, average=False)))
            for (target, classes), of in zip(asked.classes.items(), shares, strict=True):
                y = asked.test[target][part.index]
                own[kind][target].append(ranks_of(of[y >= 0], classes, y[y >= 0]))
    everyone = distributed.gather_objects((own, broken))
    unread = {name: reason for _, some in everyone for name, reason in some.items()}
    if len(unread) == len(test):
        name, reason = next(iter(unread.items()))
        raise VideoError(f"none of the {len(test)} test videos can be read; the first, {name}: {reason}")
    joined = {
        kind: {target: np.concatenate([of for some, _ in everyone for of in some[kind][target]]) for target in by}
        for kind, by in own.items()
    }
    return joined, unread
