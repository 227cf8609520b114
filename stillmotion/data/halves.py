"""Which labelled videos an evaluation learns from and which it asks: the halves of a set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from stillmotion.data.paths import VideoSet
from stillmotion.data.subset import Joined, Subset
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.videos import SYNTHETIC, Located
from stillmotion.errors import StillmotionError
from stillmotion.options import FOLD

# Of the videos drawn for an evaluation: apart from every training seed, so that all runs are asked the same videos.
SYNTHETIC_SEEDS = (1_000_001, 1_000_002)
_TEST_SHARE = 0.3


class Unlabelled(StillmotionError):
    """Videos of which none has a label: they can be set side by side, but nothing can be asked of them."""


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


@dataclass(frozen=True)
class Halves(Located):
    """Labelled videos in halves: the set's own test (or val) split where it has one, else 70/30, every class alike.

    Attributes:
        fold: which of the set's splits, or all of them; None is its first.
        videos: in each half, of the unconfounded ones that are drawn for the path "synthetic".
        seed: of the parting, where the set has no split.
    """

    fold: Annotated[int | Literal["all"] | None, FOLD] = None
    videos: int = 800
    seed: int = 0

    def open(self, drawn: SyntheticConfig | None = None) -> Parted:
        """The videos and their halves. drawn: how synthetic ones are drawn."""
        self.check_given()
        if self.path == SYNTHETIC:
            free = replace(drawn or SyntheticConfig(), videos=self.videos, confound=())
            return _joined([tuple(SyntheticSet(free, seed=s) for s in SYNTHETIC_SEEDS)], "drawn apart, unconfounded")
        if self.fold == "all":
            return _every_fold(self)
        own = _own_split(self, self.fold)
        if own is not None:
            train, test, name = own
            fold = f", fold {self.fold}" if self.fold else ""
            return _joined([(train, test)], f"the set's own train and {name} split{fold}")
        everything = Joined([_known(self.part(fold=self.fold).open())])
        if len(everything) == 0:
            raise Unlabelled(f"{self.path} has no labels; give class/video folders or a list `path,label`")
        mask = held_out(next(iter(everything.labels.values())), _TEST_SHARE, seed=self.seed)
        halves = (np.flatnonzero(~mask), np.flatnonzero(mask))
        return Parted(everything, [halves], f"parted 70/30 by seed {self.seed}, every class alike")


def held_out(labels: np.ndarray, share: float, *, seed: int) -> np.ndarray:
    """A mask of about this share of each class, by chance; a class always keeps its larger part."""
    rng = np.random.default_rng(seed)
    mask = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        mask[members[: min(round(share * len(members)), len(members) - 1)]] = True
    return mask


def _own_split(located: Located, fold: int | None) -> tuple[Subset, Subset, str] | None:
    """The set's own training half, test half and the latter's name; None where it has no split."""

    def opened(split: str | None) -> Subset:
        return _known(located.part(split, fold).open())

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


def _every_fold(located: Located) -> Parted:
    pairs: list[tuple[Subset, ...]] = []
    asked: list[set[str]] = []
    while True:
        found = _own_split(located, len(pairs) + 1)
        if found is None:
            break
        names = {found[1].name(i) for i in range(len(found[1]))}
        if names in asked:  # a set with one split gives it for any fold
            break
        pairs.append(found[:2])
        asked.append(names)
    if len(pairs) < 2:
        raise StillmotionError(f"{located.path} has no several folds; leave --fold all out")
    return _joined(pairs, f"all {len(pairs)} folds of the set")


def _joined(pairs: Sequence[tuple[VideoSet, ...]], how: str) -> Parted:
    every = Joined([half for pair in pairs for half in pair])
    return Parted(every, [(every.numbers(train), every.numbers(test)) for train, test in pairs], how)


def _known(videos: VideoSet) -> Subset:
    """The videos that have a label."""
    labels = videos.labels.values()
    known = np.any([y >= 0 for y in labels], axis=0) if labels else np.zeros(len(videos), bool)
    return Subset(videos, np.flatnonzero(known))
