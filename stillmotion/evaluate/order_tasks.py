"""Which clips a question about the order of time is asked of, and which of them are learned from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stillmotion.data.halves import SYNTHETIC_SEEDS, Halves, held_out
from stillmotion.data.layouts import Listing, locate, names_below
from stillmotion.data.paths import UNKNOWN, PathSet, VideoSet
from stillmotion.data.subset import Subset
from stillmotion.data.synthetic import SyntheticConfig, SyntheticSet
from stillmotion.data.videos import SYNTHETIC
from stillmotion.errors import StillmotionError

REVERSE = "a clip / its reverse"
Folds = list[tuple[np.ndarray, np.ndarray]]
_TEST_SHARE = 0.3
_FEWEST = 2  # training videos of each class


@dataclass(frozen=True)
class Task:
    """Clips of two classes.

    labels (N,): 0 or 1 of every clip, -1 of those that are not asked about. videos (N,): the video that each is of.
    folds: the clips to learn from and those to ask, once or for each of several folds.
    """

    name: str
    labels: np.ndarray
    videos: np.ndarray
    folds: Sequence[tuple[np.ndarray, np.ndarray]]

    def readable(self, clips: np.ndarray) -> "Task | None":
        """The task on these clips alone; None where too few are left to learn from or to ask."""
        folds = [(train[np.isin(train, clips)], test[np.isin(test, clips)]) for train, test in self.folds]
        for train, test in folds:
            if len(test) == 0 or min(np.bincount(self.labels[train], minlength=2)) < _FEWEST:
                return None
        return replace(self, folds=folds)

    def about(self) -> dict[str, Any]:
        """How many videos are asked, and what always giving the commoner answer of the training clips would score."""
        asked = [np.unique(self.videos[test]) for _, test in self.folds]
        commoner = [np.bincount(self.labels[train], minlength=2).argmax() for train, _ in self.folds]
        right = [self.labels[test] == c for (_, test), c in zip(self.folds, commoner, strict=True)]
        return {
            "train videos": sorted({len(np.unique(self.videos[train])) for train, _ in self.folds}),
            "test videos": len(np.unique(np.concatenate(asked))),
            "majority": float(np.concatenate(right).mean()),
        }


class Tasks(NamedTuple):
    """Several tasks on the clips of some videos. both: each video is followed by its reverse. how: parted, in words."""

    tasks: list[Task]
    videos: VideoSet
    both: bool
    how: str


def open_tasks(halves: Halves, *, pairs: str | Path | None = None, drawn: SyntheticConfig | None = None) -> Tasks:
    """A task for each pair of opposite actions in a JSON file, or without one: every clip against its reverse.

    halves: videos without labels are parted 70/30 by seed. A clip and its reverse are on the same side of a split, and
        of the path "synthetic" only videos in which light grows are taken: others look alike in both directions.
    pairs: {"pairs": [{"a": "Opening [something]", "b": "Closing [something]", …}, …]}. With val_ids_a and val_ids_b a
        pair's test videos are the files of these names below the path, and its training videos those of train_ids_a
        and train_ids_b; where these are left out, the former are parted 70/30 by seed. Without ids, a and b are
        classes of the set.
    drawn: as for `Halves.open`.
    """
    halves.check_given()
    listed = [] if pairs is None else read_pairs(pairs)
    if any("val_ids_a" in pair for pair in listed):
        return _pairs_by_id(listed, Path(halves.path), halves.seed)
    if pairs is None:
        return _reverses(*_any_videos(halves, drawn or SyntheticConfig()))
    parted = halves.open(drawn)
    tasks = []
    for pair in listed:
        labels = _labels(pair, parted.videos.labels, parted.videos.classes)
        folds = [(train[labels[train] >= 0], test[labels[test] >= 0]) for train, test in parted.folds]
        tasks.append(Task(_name(pair), labels, np.arange(len(labels)), folds))
    return Tasks(tasks, parted.videos, False, parted.how)


def read_pairs(file: str | Path) -> list[dict[str, Any]]:
    """The pairs of a JSON file."""
    try:
        pairs = json.loads(Path(file).read_text())["pairs"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StillmotionError(f'{file}: not a JSON file {{"pairs": [{{"a": …, "b": …}}]}} ({error})') from None
    for pair in pairs:
        if not {"a", "b"} <= pair.keys() or len({"val_ids_a", "val_ids_b"} & pair.keys()) == 1:
            raise StillmotionError(f"{file}: a pair needs a and b, and val_ids_a and val_ids_b or neither; got {pair}")
    if not pairs:
        raise StillmotionError(f"{file}: no pairs in it")
    return list(pairs)


def _pairs_by_id(pairs: Sequence[Mapping[str, Any]], root: Path, seed: int) -> Tasks:
    def ids(pair: Mapping[str, Any], half: str, side: str) -> list[str]:
        return [str(name) for name in pair.get(f"{half}_ids_{side}", ())]

    halves = [(pair, half, side) for pair in pairs for half in ("train", "val") for side in "ab"]
    names = list(dict.fromkeys(name for where in halves for name in ids(*where)))
    places = locate(names_below(root), Listing([((name,), UNKNOWN) for name in names], []))
    there = {name: path for name, path in zip(names, places, strict=True) if path is not None}
    if not there:
        raise StillmotionError(f"{root}: none of the {len(names)} videos of the pairs is there; the first: {names[0]}")
    number = {name: i for i, name in enumerate(there)}
    tasks = []
    for pair in pairs:
        labels = np.full(len(number), UNKNOWN)
        clips = {}
        for half in ("train", "val"):
            sides = [[number[n] for n in ids(pair, half, side) if n in number] for side in "ab"]
            for label, some in enumerate(sides):
                labels[some] = label
            clips[half] = np.array(sides[0] + sides[1], np.int64)
        train, test = clips["train"], clips["val"]
        if "train_ids_a" not in pair:
            mask = held_out(labels[test], _TEST_SHARE, seed=seed)
            train, test = test[~mask], test[mask]
        tasks.append(Task(_name(pair), labels, np.arange(len(number)), [(train, test)]))
    how = f"by ids, of which {len(there)} of {len(names)} are there"
    if not all("train_ids_a" in pair for pair in pairs):
        how += f"; validation videos parted 70/30 by seed {seed}"
    return Tasks(tasks, PathSet(list(there.values()), root=root), False, how)


def _labels(
    pair: Mapping[str, Any], labels: Mapping[str, np.ndarray], classes: Mapping[str, Sequence[str]]
) -> np.ndarray:
    """0 and 1 where a set's videos are of the pair's classes."""
    a, b = _plain(pair["a"]), _plain(pair["b"])
    for target, names in classes.items():
        plain = [_plain(name) for name in names]
        if a in plain and b in plain:
            y = labels[target]
            return np.where(y == plain.index(a), 0, np.where(y == plain.index(b), 1, UNKNOWN))
    some = ", ".join(name for names in classes.values() for name in list(names)[:4])
    raise StillmotionError(f"the set has no classes {a!r} and {b!r}; it has {some}, …")


def _name(pair: Mapping[str, Any]) -> str:
    return f"{_plain(pair['a'])} / {_plain(pair['b'])}"


def _plain(name: str) -> str:
    """SSv2's lists write [something], and its labels something."""
    return name.replace("[", "").replace("]", "")


def _any_videos(halves: Halves, drawn: SyntheticConfig) -> tuple[VideoSet, Folds, str]:
    """Videos, with labels or without, the numbers of those to learn from and to ask, and how they were parted."""
    if halves.path == SYNTHETIC:
        free = SyntheticSet(replace(drawn, videos=8 * halves.videos, confound=()), seed=SYNTHETIC_SEEDS[0])
        everything: VideoSet = Subset(free, np.flatnonzero(free.labels["brightness"] == 0)[: halves.videos])
    else:
        everything = halves.part().open()
        if any((y >= 0).any() for y in everything.labels.values()):
            parted = halves.open()
            return parted.videos, parted.folds, parted.how
    mask = held_out(np.zeros(len(everything)), _TEST_SHARE, seed=halves.seed)
    return everything, [(np.flatnonzero(~mask), np.flatnonzero(mask))], f"videos parted 70/30 by seed {halves.seed}"


def _reverses(videos: VideoSet, folds: Folds, how: str) -> Tasks:
    labels, numbers = np.tile([0, 1], len(videos)), np.repeat(np.arange(len(videos)), 2)

    def doubled(some: np.ndarray) -> np.ndarray:
        return np.stack([2 * some, 2 * some + 1], 1).ravel()

    halves = [(doubled(train), doubled(test)) for train, test in folds]
    return Tasks([Task(REVERSE, labels, numbers, halves)], videos, True, how)
