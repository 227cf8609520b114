"""Which labelled videos an evaluation learns from and which it asks: the halves of a set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stillmotion.config import DataConfig
from stillmotion.data.paths import VideoSet
from stillmotion.data.sets import open_dataset
from stillmotion.data.synthetic import SyntheticSet
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.linear import held_out
from stillmotion.evaluate.subset import Joined, Subset

Fold = int | Literal["all"] | None

# Of the videos drawn for an evaluation: apart from every training seed, so that all runs are asked the same videos.
SYNTHETIC_SEEDS = (1_000_001, 1_000_002)
_TEST_SHARE = 0.3


@dataclass(frozen=True)
class Parted:
    """Labelled videos and their halves.

    folds: the numbers of the training and of the test videos, once or for each of several folds.
    how: how the halves came about, in words.
    """

    videos: Joined
    folds: list[tuple[np.ndarray, np.ndarray]]
    how: str

    def halves(self) -> tuple[Subset, Subset]:
        """The training and the test videos of the first fold."""
        train, test = (Subset(self.videos, half) for half in self.folds[0])
        return train, test


def part(
    data: str,
    config: DataConfig,
    *,
    kind: str = "auto",
    fold: Fold = None,
    annotations: str | None = None,
    videos: int = 800,
    seed: int = 0,
) -> Parted:
    """The halves of a set: its own test (or val) split where it has one, else 70/30 by `seed`, every class alike.

    data: labelled videos, or "synthetic": unconfounded ones as the configuration draws them, `videos` in each half.
    kind, annotations: as for `open_dataset`. fold: which of the set's splits, or "all" of them.
    """
    if data == "synthetic":
        drawn = replace(config.synthetic, videos=videos, confound=())
        return _joined([tuple(SyntheticSet(drawn, seed=s) for s in SYNTHETIC_SEEDS)], "drawn apart, unconfounded")
    if fold == "all":
        return _every_fold(data, kind=kind, annotations=annotations)
    own = _own_split(data, kind=kind, fold=fold, annotations=annotations)
    if own is not None:
        train, test, name = own
        return _joined([(train, test)], f"the set's own train and {name} split" + (f", fold {fold}" if fold else ""))
    everything = Joined([_known(open_dataset(data, kind=kind, fold=fold, annotations=annotations))])
    if len(everything) == 0:
        raise StillmotionError(f"{data} has no labels; give class/video folders or a list `path,label`")
    mask = held_out(next(iter(everything.labels.values())), _TEST_SHARE, seed=seed)
    halves = (np.flatnonzero(~mask), np.flatnonzero(mask))
    return Parted(everything, [halves], f"parted 70/30 by seed {seed}, every class alike")


def _own_split(data: str, *, kind: str, fold: int | None, annotations: str | None) -> tuple[Subset, Subset, str] | None:
    """The set's own training half, test half and the latter's name; None where it has no split."""

    def opened(split: str | None) -> Subset:
        return _known(open_dataset(data, kind=kind, split=split, fold=fold, annotations=annotations))

    opened(None)  # what is wrong with the set as a whole is said by itself
    for name in ("test", "val"):
        try:
            train, test = opened("train"), opened(name)
        except StillmotionError:
            continue  # this set has no such split
        shared = {train.name(i) for i in range(len(train))} & {test.name(i) for i in range(len(test))}
        if len(train) and len(test) and not shared:
            return train, test, name
    return None


def _every_fold(data: str, *, kind: str, annotations: str | None) -> Parted:
    pairs: list[tuple[Subset, ...]] = []
    asked: list[set[str]] = []
    while True:
        found = _own_split(data, kind=kind, fold=len(pairs) + 1, annotations=annotations)
        if found is None:
            break
        names = {found[1].name(i) for i in range(len(found[1]))}
        if names in asked:  # a set with one split gives it for any fold
            break
        pairs.append(found[:2])
        asked.append(names)
    if len(pairs) < 2:
        raise StillmotionError(f"{data} has no several folds; leave --fold all out")
    return _joined(pairs, f"all {len(pairs)} folds of the set")


def _joined(pairs: Sequence[tuple[VideoSet, ...]], how: str) -> Parted:
    every = Joined([half for pair in pairs for half in pair])
    return Parted(every, [(every.numbers(train), every.numbers(test)) for train, test in pairs], how)


def _known(videos: VideoSet) -> Subset:
    """The videos that have a label."""
    labels: Mapping[str, np.ndarray] = getattr(videos, "labels", {})
    known = np.any([y >= 0 for y in labels.values()], axis=0) if labels else np.zeros(len(videos), bool)
    return Subset(videos, np.flatnonzero(known))
