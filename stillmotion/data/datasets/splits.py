"""Which labelled videos an evaluation learns from and which it asks: the halves of a set."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from stillmotion.data.datasets.base import DEFAULT_TARGET, UNKNOWN_LABEL, PathDataset, VideoDataset
from stillmotion.data.datasets.config import SYNTHETIC, VideoSource
from stillmotion.data.datasets.wrappers import ConcatDataset, Subset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.errors import StillmotionError
from stillmotion.utils.option_types import FOLD_ARG

# Of the videos drawn for an evaluation: apart from every training seed, so that all runs are asked the same videos.
EVAL_SYNTHETIC_SEEDS = (1_000_001, 1_000_002)
_TEST_FRACTION = 0.3


class MissingLabelsError(StillmotionError):
    """Videos of which none has a label: they can be set side by side, but nothing can be asked of them."""


@dataclass(frozen=True)
class TrainTestSplit:
    """Labelled videos and their halves.

    folds: the numbers of the training and of the test videos, once or for each of several folds.
    description: how the halves came about, in words.
    """

    dataset: ConcatDataset
    folds: list[tuple[np.ndarray, np.ndarray]]
    description: str

    @property
    def has_labels(self) -> bool:
        """Whether the videos have labels, and are split."""
        return bool(self.folds)

    def train_test(self) -> tuple[Subset, Subset]:
        """The training and the test videos of the first fold."""
        train, test = (Subset(self.dataset, half) for half in self.folds[0])
        return train, test


@dataclass(frozen=True)
class TrainTestConfig(VideoSource):
    """Labelled videos in halves: the set's own test (or val) split where it has one, else 70/30, every class alike.

    Attributes:
        fold: which of the set's splits, or all of them; None is its first.
        num_synthetic: in each half, of the unconfounded ones that are drawn for the path "synthetic".
        split_seed: of the parting, where the set has no split.
    """

    fold: Annotated[int | Literal["all"] | None, FOLD_ARG] = None
    num_synthetic: int = 800
    split_seed: int = 0

    def open(self, synthetic: SyntheticConfig | None = None, *, require_labels: bool = True) -> TrainTestSplit:
        """Open the videos and split them.

        Args:
            synthetic: How synthetic videos are generated.
            require_labels: Raise an error for videos without labels; otherwise they are opened without a split.

        Returns:
            The videos and their train/test split.

        Raises:
            MissingLabelsError: If no video has a label and labels are required.
        """
        self.check_path_given()
        if self.path == SYNTHETIC:
            free = replace(synthetic or SyntheticConfig(), num_videos=self.num_synthetic, confound=())
            return _build_split(
                [tuple(SyntheticDataset(free, seed=s) for s in EVAL_SYNTHETIC_SEEDS)], "drawn apart, unconfounded"
            )
        if self.fold == "all":
            return _all_folds(self)
        own = _official_split(self, self.fold)
        if own is not None:
            train, test, name = own
            fold = f", fold {self.fold}" if self.fold else ""
            return _build_split([(train, test)], f"the set's own train and {name} split{fold}")
        everything = ConcatDataset([_labeled_subset(self.with_split(fold=self.fold).open())])
        if len(everything) == 0 and not require_labels:
            return TrainTestSplit(ConcatDataset([self.with_split().open()]), [], "no labels")
        if len(everything) == 0:
            raise MissingLabelsError(f"{self.path} has no labels; give class/video folders or a list `path,label`")
        mask = stratified_test_mask(next(iter(everything.labels.values())), _TEST_FRACTION, seed=self.split_seed)
        halves = (np.flatnonzero(~mask), np.flatnonzero(mask))
        return TrainTestSplit(everything, [halves], f"parted 70/30 by seed {self.split_seed}, every class alike")


def stratified_test_mask(labels: np.ndarray, test_fraction: float, *, seed: int) -> np.ndarray:
    """A mask of about this share of each class, by chance; a class always keeps its larger part."""
    rng = np.random.default_rng(seed)
    mask = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        mask[members[: min(round(test_fraction * len(members)), len(members) - 1)]] = True
    return mask


def _official_split(source: VideoSource, fold: int | None) -> tuple[Subset, Subset, str] | None:
    """The set's own training half, test half and the latter's name; None where it has no split."""

    def opened(split: str | None) -> Subset:
        return _labeled_subset(source.with_split(split, fold).open())

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


def _all_folds(source: VideoSource) -> TrainTestSplit:
    pairs: list[tuple[Subset, ...]] = []
    asked: list[set[str]] = []
    while True:
        found = _official_split(source, len(pairs) + 1)
        if found is None:
            break
        names = {found[1].name(i) for i in range(len(found[1]))}
        if names in asked:  # a set with one split gives it for any fold
            break
        pairs.append(found[:2])
        asked.append(names)
    if len(pairs) < 2:
        raise StillmotionError(f"{source.path} has no several folds; leave --fold all out")
    return _build_split(pairs, f"all {len(pairs)} folds of the set")


def _build_split(pairs: Sequence[tuple[VideoDataset, ...]], description: str) -> TrainTestSplit:
    every = ConcatDataset([half for pair in pairs for half in pair])
    return TrainTestSplit(
        every, [(every.indices_of(train), every.indices_of(test)) for train, test in pairs], description
    )


def _labeled_subset(dataset: VideoDataset) -> Subset:
    """The videos that have a label."""
    labels = dataset.labels.values()
    known = np.any([y >= 0 for y in labels], axis=0) if labels else np.zeros(len(dataset), bool)
    return Subset(dataset, np.flatnonzero(known))


@dataclass(frozen=True)
class ClassificationSplit:
    """Videos to train on and to test on.

    train_labels, test_labels: numbers of classes, of which -1 is one that no training video has.
    classes: names of those that training videos have. target: which label it is. how: how the halves came about.
    """

    train: Subset
    test: Subset
    train_labels: np.ndarray
    test_labels: np.ndarray
    classes: list[str]
    target: str
    description: str


def open_classification_split(
    config: TrainTestConfig, *, target: str = "", per_class: int = 0, synthetic: SyntheticConfig | None = None
) -> ClassificationSplit:
    """The halves of a set for a classifier; an error if there is nothing to tell apart.

    target: which label, where videos have several. per_class: training videos of each class, by the halves' seed;
        0 takes all. drawn: as for `Halves.open`.
    """
    config.check_path_given()
    path, fold = config.path, config.fold
    if isinstance(fold, int) and Path(path).exists():
        try:
            config.with_split("train", fold).open()
        except StillmotionError as error:
            raise StillmotionError(
                f"{path} has no fold {fold} ({error}); leave the fold out or choose another"
            ) from None
    parted = config.open(synthetic)
    target = _resolve_target(target, list(parted.dataset.labels), path)
    train, test = (_labeled_for_target(half, target) for half in parted.train_test())
    if per_class:
        train = _sample_per_class(train, target, per_class, seed=config.split_seed)
    train_y, test_y = train.labels[target], test.labels[target]
    trained = np.unique(train_y)
    names = parted.dataset.classes[target]
    if len(trained) < 2:
        only = f"have the same label, {names[trained[0]]}" if len(trained) else f"have no label {target}"
        raise StillmotionError(f"all training videos of {path} {only}; a classifier needs at least two classes")
    if len(test_y) == 0:
        raise StillmotionError(f"no test video of {path} has a label {target}; nothing could be measured")
    number = np.full(len(names), -1)
    number[trained] = np.arange(len(trained))
    return ClassificationSplit(
        train, test, number[train_y], number[test_y], [names[i] for i in trained], target, parted.description
    )


def _resolve_target(target: str, targets: list[str], path: str) -> str:
    if target in targets:
        return target
    if not target and len(targets) == 1:
        return targets[0]
    said = f"there is no label {target!r}" if target else "videos have several labels"
    raise StillmotionError(f"{path}: {said}; choose one of {', '.join(targets)} (--data.target)")


def _labeled_for_target(split: Subset, target: str) -> Subset:
    return Subset(split.dataset, split.indices[split.labels[target] >= 0])


def _sample_per_class(split: Subset, target: str, num_videos: int, *, seed: int) -> Subset:
    """So many videos of each class, by chance; all of a smaller one."""
    labels = split.labels[target]
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    taken = [shuffled[labels[shuffled] == label][:num_videos] for label in np.unique(labels)]
    return Subset(split.dataset, split.indices[np.sort(np.concatenate(taken))])


_FOLDS = (1, 2, 3)
# "val" comes last: where a set has no val of its own, it is another word for test.
_SPLITS = ("train", "test", "val")


def open_all_splits(source: VideoSource) -> VideoDataset:
    """The data set that lies there, in all its splits.

    Its `rows` have the columns of the list it comes from, or else `split` (of several folds `split1`, `split2`, …),
    where there are splits.
    """
    data = source.with_split().open()
    if not isinstance(data, PathDataset) or data.csv_rows:
        return data
    parts = list(_available_splits(source))
    if not parts:
        return data
    # A published set numbers its classes; of sub-folders, one may lack a class.
    lists = [part.classes.get(DEFAULT_TARGET, []) for *_, part in parts]
    classes = lists[0] if all(names == lists[0] for names in lists) else sorted(set().union(*lists))
    splits: dict[Path, dict[str, str]] = {}
    labels: dict[Path, int] = {}
    for fold, split, part in parts:
        for video, name in zip(part.paths, _class_names(part), strict=True):
            splits.setdefault(video, {}).setdefault(f"split{fold}", split)
            labels[video] = UNKNOWN_LABEL if name is None else classes.index(name)
    folds = sorted({f"split{fold}" for fold, *_ in parts})
    if all(row.get(fold) == row.get(folds[0]) for row in splits.values() for fold in folds):
        rows = [{"split": row[folds[0]]} for row in splits.values()]
    else:
        rows = [{fold: row.get(fold, "") for fold in folds} for row in splits.values()]
    return PathDataset(
        list(splits),
        labels=list(labels.values()) if classes else None,
        classes=classes,
        root=Path(source.path),
        missing_videos=data.missing_videos,
        csv_rows=rows,
    )


def _available_splits(source: VideoSource) -> Iterator[tuple[int, str, PathDataset]]:
    for fold in _FOLDS:
        for split in _SPLITS:
            try:
                part = source.with_split(split, fold).open()
            except StillmotionError:  # there is no such split
                continue
            if isinstance(part, PathDataset):
                yield fold, split, part


def _class_names(part: PathDataset) -> list[str | None]:
    if DEFAULT_TARGET not in part.labels:
        return [None] * len(part)
    return [
        None if label == UNKNOWN_LABEL else part.classes[DEFAULT_TARGET][label] for label in part.labels[DEFAULT_TARGET]
    ]
