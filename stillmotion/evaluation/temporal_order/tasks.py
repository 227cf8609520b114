"""Tasks of the temporal-order tests: their clips, labels and folds."""

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
_MIN_TRAIN_VIDEOS = 2  # per class


@dataclass(frozen=True)
class OrderTask:
    """Clips of two classes, and their train/test folds.

    Args:
        name: Name.
        labels: 0 or 1 for every clip, -1 for those that are not used, (N,).
        videos: Video of each clip, (N,).
        folds: Indices of training and test clips of each fold.
    """

    name: str
    labels: np.ndarray
    videos: np.ndarray
    folds: Sequence[tuple[np.ndarray, np.ndarray]]

    def restricted_to(self, clip_indices: np.ndarray) -> "OrderTask | None":
        """Return the task with only these clips; None if too few are left to train or test."""
        folds = [(train[np.isin(train, clip_indices)], test[np.isin(test, clip_indices)]) for train, test in self.folds]
        for train, test in folds:
            if len(test) == 0 or min(np.bincount(self.labels[train], minlength=2)) < _MIN_TRAIN_VIDEOS:
                return None
        return replace(self, folds=folds)

    def summary(self) -> dict[str, Any]:
        """Return the number of videos, and the accuracy of always predicting the majority class."""
        test_videos = [np.unique(self.videos[test]) for _, test in self.folds]
        majority = [np.bincount(self.labels[train], minlength=2).argmax() for train, _ in self.folds]
        correct = [self.labels[test] == c for (_, test), c in zip(self.folds, majority, strict=True)]
        return {
            "num_train_videos": sorted({len(np.unique(self.videos[train])) for train, _ in self.folds}),
            "num_test_videos": len(np.unique(np.concatenate(test_videos))),
            "majority_accuracy": float(np.concatenate(correct).mean()),
        }


class OrderTaskSet(NamedTuple):
    """Several tasks on the same videos.

    Args:
        tasks: Tasks.
        videos: Videos.
        includes_reversed: Each video is followed by its time-reversed copy.
        split_description: How the videos are split.
    """

    tasks: list[OrderTask]
    videos: VideoDataset
    includes_reversed: bool
    split_description: str


def build_order_tasks(
    split_config: TrainTestConfig, *, action_pairs: str | Path | None = None, synthetic: SyntheticConfig | None = None
) -> OrderTaskSet:
    """Build a task for each pair of opposite actions, or one task of clips against their time-reversed copies.

    Args:
        split_config: Videos. Those without labels are split 70/30 by seed. A clip and its reverse are on the same side
            of a split. Of "synthetic" videos only those that brighten are used: others look alike in both directions.
        action_pairs: JSON file {"pairs": [{"a": "Opening [something]", "b": "Closing [something]", …}, …]}. With
            val_ids_a and val_ids_b, the test videos of a pair are the files of these names below the path, and its
            training videos those of train_ids_a and train_ids_b; without the latter, the former are split 70/30 by
            seed. Without ids, a and b are classes of the data set.
        synthetic: How synthetic videos are generated.

    Returns:
        The tasks.

    Raises:
        StillmotionError: If the file is not valid, or its videos or classes do not exist.
    """
    split_config.check_path_given()
    listed = [] if action_pairs is None else load_action_pairs(action_pairs)
    if any("val_ids_a" in pair for pair in listed):
        return _pairs_by_id(listed, Path(split_config.path), split_config.split_seed)
    if action_pairs is None:
        return _reversed_task(*_open_unlabeled_split(split_config, synthetic or SyntheticConfig()))
    split = split_config.open(synthetic)
    tasks = []
    for pair in listed:
        labels = _pair_labels(pair, split.dataset.labels, split.dataset.classes)
        folds = [(train[labels[train] >= 0], test[labels[test] >= 0]) for train, test in split.folds]
        tasks.append(OrderTask(_pair_name(pair), labels, np.arange(len(labels)), folds))
    return OrderTaskSet(tasks, split.dataset, False, split.description)


def load_action_pairs(file: str | Path) -> list[dict[str, Any]]:
    """Read the pairs of opposite actions of a JSON file; raise StillmotionError if it is not valid."""
    try:
        pairs = read_json(file)["pairs"]
    except (OSError, StillmotionError, KeyError, TypeError) as error:
        raise StillmotionError(f'{file}: not a JSON file {{"pairs": [{{"a": …, "b": …}}]}} ({error})') from None
    for pair in pairs:
        if not {"a", "b"} <= pair.keys() or len({"val_ids_a", "val_ids_b"} & pair.keys()) == 1:
            raise StillmotionError(f"{file}: a pair needs a and b, and val_ids_a and val_ids_b or neither; got {pair}")
    if not pairs:
        raise StillmotionError(f"{file}: it has no pairs")
    return list(pairs)


def _pairs_by_id(pairs: Sequence[Mapping[str, Any]], root: Path, seed: int) -> OrderTaskSet:
    def ids(pair: Mapping[str, Any], split: str, side: str) -> list[str]:
        return [str(name) for name in pair.get(f"{split}_ids_{side}", ())]

    lists = [(pair, split, side) for pair in pairs for split in ("train", "val") for side in "ab"]
    names = list(dict.fromkeys(name for which in lists for name in ids(*which)))
    paths = find_listed_videos(
        index_videos_by_name(root), AnnotationList([((name,), UNKNOWN_LABEL) for name in names], [])
    )
    existing = {name: path for name, path in zip(names, paths, strict=True) if path is not None}
    if not existing:
        raise StillmotionError(f"{root} has none of the {len(names)} videos of the pairs; the first is {names[0]}.")
    number = {name: i for i, name in enumerate(existing)}
    tasks = []
    for pair in pairs:
        labels = np.full(len(number), UNKNOWN_LABEL)
        clips = {}
        for split in ("train", "val"):
            sides = [[number[n] for n in ids(pair, split, side) if n in number] for side in "ab"]
            for label, some in enumerate(sides):
                labels[some] = label
            clips[split] = np.array(sides[0] + sides[1], np.int64)
        train, test = clips["train"], clips["val"]
        if "train_ids_a" not in pair:
            mask = stratified_test_mask(labels[test], _TEST_FRACTION, seed=seed)
            train, test = test[~mask], test[mask]
        tasks.append(OrderTask(_pair_name(pair), labels, np.arange(len(number)), [(train, test)]))
    description = f"by ids, {len(existing)} of {len(names)} found"
    if not all("train_ids_a" in pair for pair in pairs):
        description += f"; validation videos split 70/30 by seed {seed}"
    return OrderTaskSet(tasks, PathDataset(list(existing.values()), root=root), False, description)


def _pair_labels(
    pair: Mapping[str, Any], labels: Mapping[str, np.ndarray], classes: Mapping[str, Sequence[str]]
) -> np.ndarray:
    """Return 0 and 1 for videos of the pair's classes, and -1 for others."""
    a, b = _strip_brackets(pair["a"]), _strip_brackets(pair["b"])
    for target, names in classes.items():
        plain = [_strip_brackets(name) for name in names]
        if a in plain and b in plain:
            y = labels[target]
            return np.where(y == plain.index(a), 0, np.where(y == plain.index(b), 1, UNKNOWN_LABEL))
    some = ", ".join(name for names in classes.values() for name in list(names)[:4])
    raise StillmotionError(f"The data set has no classes {a!r} and {b!r}; it has {some}, …")


def _pair_name(pair: Mapping[str, Any]) -> str:
    return f"{_strip_brackets(pair['a'])} / {_strip_brackets(pair['b'])}"


def _strip_brackets(name: str) -> str:
    """Remove brackets: SSv2 writes [something] in its lists, and something in its labels."""
    return name.replace("[", "").replace("]", "")


def _open_unlabeled_split(
    split_config: TrainTestConfig, synthetic: SyntheticConfig
) -> tuple[VideoDataset, FoldIndices, str]:
    """Return videos, with labels or without, their folds, and how they were split."""
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
            split = split_config.open()
            return split.dataset, split.folds, split.description
    mask = stratified_test_mask(np.zeros(len(everything)), _TEST_FRACTION, seed=split_config.split_seed)
    return (
        everything,
        [(np.flatnonzero(~mask), np.flatnonzero(mask))],
        f"videos split 70/30 by seed {split_config.split_seed}",
    )


def _reversed_task(videos: VideoDataset, folds: FoldIndices, split_description: str) -> OrderTaskSet:
    labels, numbers = np.tile([0, 1], len(videos)), np.repeat(np.arange(len(videos)), 2)

    def with_reverses(indices: np.ndarray) -> np.ndarray:
        return np.stack([2 * indices, 2 * indices + 1], 1).ravel()

    clip_folds = [(with_reverses(train), with_reverses(test)) for train, test in folds]
    return OrderTaskSet([OrderTask(FORWARD_OR_REVERSED, labels, numbers, clip_folds)], videos, True, split_description)
