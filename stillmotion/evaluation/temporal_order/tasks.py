"""Which clips a question about the order of time is asked of, and which of them are learned from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stillmotion.data.datasets.annotations import AnnotationList, find_listed_videos, index_videos_by_name
from stillmotion.data.datasets.base import UNKNOWN_LABEL, PathDataset, VideoDataset
from stillmotion.data.datasets.config import SYNTHETIC
from stillmotion.data.datasets.splits import EVAL_SYNTHETIC_SEEDS, TrainTestConfig, stratified_test_mask
from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import read_json

FORWARD_OR_REVERSED = "a clip / its reverse"
FoldIndices = list[tuple[np.ndarray, np.ndarray]]
_TEST_FRACTION = 0.3
_MIN_TRAIN_VIDEOS = 2  # training videos of each class


@dataclass(frozen=True)
class OrderTask:
    """Clips of two classes.

    labels (N,): 0 or 1 of every clip, -1 of those that are not asked about. videos (N,): the video that each is of.
    folds: the clips to learn from and those to ask, once or for each of several folds.
    """

    name: str
    labels: np.ndarray
    videos: np.ndarray
    folds: Sequence[tuple[np.ndarray, np.ndarray]]

    def restricted_to(self, clip_indices: np.ndarray) -> "OrderTask | None":
        """The task on these clips alone; None where too few are left to learn from or to ask."""
        folds = [(train[np.isin(train, clip_indices)], test[np.isin(test, clip_indices)]) for train, test in self.folds]
        for train, test in folds:
            if len(test) == 0 or min(np.bincount(self.labels[train], minlength=2)) < _MIN_TRAIN_VIDEOS:
                return None
        return replace(self, folds=folds)

    def summary(self) -> dict[str, Any]:
        """How many videos are asked, and what always giving the commoner answer of the training clips would score."""
        asked = [np.unique(self.videos[test]) for _, test in self.folds]
        commoner = [np.bincount(self.labels[train], minlength=2).argmax() for train, _ in self.folds]
        right = [self.labels[test] == c for (_, test), c in zip(self.folds, commoner, strict=True)]
        return {
            "num_train_videos": sorted({len(np.unique(self.videos[train])) for train, _ in self.folds}),
            "num_test_videos": len(np.unique(np.concatenate(asked))),
            "majority": float(np.concatenate(right).mean()),
        }


class OrderTaskSet(NamedTuple):
    """Several tasks on the clips of some videos. both: each video is followed by its reverse. how: parted, in words."""

    tasks: list[OrderTask]
    videos: VideoDataset
    includes_reversed: bool
    split_description: str


def build_order_tasks(
    split_config: TrainTestConfig, *, action_pairs: str | Path | None = None, synthetic: SyntheticConfig | None = None
) -> OrderTaskSet:
    """A task for each pair of opposite actions in a JSON file, or without one: every clip against its reverse.

    split_config: videos without labels are parted 70/30 by seed. A clip and its reverse are on the same side of a split, and
        of the path "synthetic" only videos in which light grows are taken: others look alike in both directions.
    action_pairs: {"pairs": [{"a": "Opening [something]", "b": "Closing [something]", …}, …]}. With val_ids_a and val_ids_b a
        pair's test videos are the files of these names below the path, and its training videos those of train_ids_a
        and train_ids_b; where these are left out, the former are parted 70/30 by seed. Without ids, a and b are
        classes of the set.
    synthetic: as for `Halves.open`.
    """
    split_config.check_path_given()
    listed = [] if action_pairs is None else load_action_pairs(action_pairs)
    if any("val_ids_a" in pair for pair in listed):
        return _pairs_by_id(listed, Path(split_config.path), split_config.split_seed)
    if action_pairs is None:
        return _reversed_task(*_open_unlabeled_split(split_config, synthetic or SyntheticConfig()))
    parted = split_config.open(synthetic)
    tasks = []
    for pair in listed:
        labels = _pair_labels(pair, parted.dataset.labels, parted.dataset.classes)
        folds = [(train[labels[train] >= 0], test[labels[test] >= 0]) for train, test in parted.folds]
        tasks.append(OrderTask(_pair_name(pair), labels, np.arange(len(labels)), folds))
    return OrderTaskSet(tasks, parted.dataset, False, parted.description)


def load_action_pairs(file: str | Path) -> list[dict[str, Any]]:
    """The pairs of a JSON file."""
    try:
        pairs = read_json(file)["pairs"]
    except (OSError, StillmotionError, KeyError, TypeError) as error:
        raise StillmotionError(f'{file}: not a JSON file {{"pairs": [{{"a": …, "b": …}}]}} ({error})') from None
    for pair in pairs:
        if not {"a", "b"} <= pair.keys() or len({"val_ids_a", "val_ids_b"} & pair.keys()) == 1:
            raise StillmotionError(f"{file}: a pair needs a and b, and val_ids_a and val_ids_b or neither; got {pair}")
    if not pairs:
        raise StillmotionError(f"{file}: no pairs in it")
    return list(pairs)


def _pairs_by_id(pairs: Sequence[Mapping[str, Any]], root: Path, seed: int) -> OrderTaskSet:
    def ids(pair: Mapping[str, Any], half: str, side: str) -> list[str]:
        return [str(name) for name in pair.get(f"{half}_ids_{side}", ())]

    halves = [(pair, half, side) for pair in pairs for half in ("train", "val") for side in "ab"]
    names = list(dict.fromkeys(name for where in halves for name in ids(*where)))
    places = find_listed_videos(
        index_videos_by_name(root), AnnotationList([((name,), UNKNOWN_LABEL) for name in names], [])
    )
    there = {name: path for name, path in zip(names, places, strict=True) if path is not None}
    if not there:
        raise StillmotionError(f"{root}: none of the {len(names)} videos of the pairs is there; the first: {names[0]}")
    number = {name: i for i, name in enumerate(there)}
    tasks = []
    for pair in pairs:
        labels = np.full(len(number), UNKNOWN_LABEL)
        clips = {}
        for half in ("train", "val"):
            sides = [[number[n] for n in ids(pair, half, side) if n in number] for side in "ab"]
            for label, some in enumerate(sides):
                labels[some] = label
            clips[half] = np.array(sides[0] + sides[1], np.int64)
        train, test = clips["train"], clips["val"]
        if "train_ids_a" not in pair:
            mask = stratified_test_mask(labels[test], _TEST_FRACTION, seed=seed)
            train, test = test[~mask], test[mask]
        tasks.append(OrderTask(_pair_name(pair), labels, np.arange(len(number)), [(train, test)]))
    how = f"by ids, of which {len(there)} of {len(names)} are there"
    if not all("train_ids_a" in pair for pair in pairs):
        how += f"; validation videos parted 70/30 by seed {seed}"
    return OrderTaskSet(tasks, PathDataset(list(there.values()), root=root), False, how)


def _pair_labels(
    pair: Mapping[str, Any], labels: Mapping[str, np.ndarray], classes: Mapping[str, Sequence[str]]
) -> np.ndarray:
    """0 and 1 where a set's videos are of the pair's classes."""
    a, b = _strip_brackets(pair["a"]), _strip_brackets(pair["b"])
    for target, names in classes.items():
        plain = [_strip_brackets(name) for name in names]
        if a in plain and b in plain:
            y = labels[target]
            return np.where(y == plain.index(a), 0, np.where(y == plain.index(b), 1, UNKNOWN_LABEL))
    some = ", ".join(name for names in classes.values() for name in list(names)[:4])
    raise StillmotionError(f"the set has no classes {a!r} and {b!r}; it has {some}, …")


def _pair_name(pair: Mapping[str, Any]) -> str:
    return f"{_strip_brackets(pair['a'])} / {_strip_brackets(pair['b'])}"


def _strip_brackets(name: str) -> str:
    """SSv2's lists write [something], and its labels something."""
    return name.replace("[", "").replace("]", "")


def _open_unlabeled_split(
    split_config: TrainTestConfig, synthetic: SyntheticConfig
) -> tuple[VideoDataset, FoldIndices, str]:
    """Videos, with labels or without, the numbers of those to learn from and to ask, and how they were parted."""
    if split_config.path == SYNTHETIC:
        free = SyntheticDataset(
            replace(synthetic, num_videos=8 * split_config.num_synthetic, confound=()), seed=EVAL_SYNTHETIC_SEEDS[0]
        )
        everything: VideoDataset = Subset(
            free, np.flatnonzero(free.labels["brightness"] == 0)[: split_config.num_synthetic]
        )
    else:
        everything = split_config.with_split().open()
        if any((y >= 0).any() for y in everything.labels.values()):
            parted = split_config.open()
            return parted.dataset, parted.folds, parted.description
    mask = stratified_test_mask(np.zeros(len(everything)), _TEST_FRACTION, seed=split_config.split_seed)
    return (
        everything,
        [(np.flatnonzero(~mask), np.flatnonzero(mask))],
        f"videos parted 70/30 by seed {split_config.split_seed}",
    )


def _reversed_task(videos: VideoDataset, folds: FoldIndices, split_description: str) -> OrderTaskSet:
    labels, numbers = np.tile([0, 1], len(videos)), np.repeat(np.arange(len(videos)), 2)

    def doubled(some: np.ndarray) -> np.ndarray:
        return np.stack([2 * some, 2 * some + 1], 1).ravel()

    halves = [(doubled(train), doubled(test)) for train, test in folds]
    return OrderTaskSet([OrderTask(FORWARD_OR_REVERSED, labels, numbers, halves)], videos, True, split_description)
