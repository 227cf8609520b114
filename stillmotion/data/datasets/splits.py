"""Train and test videos: official or stratified splits and folds, for evaluations, classifiers and copies."""

from collections.abc import Sequence
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

# Seeds of the synthetic train and test videos; different from every training seed, and the same for all runs.
EVAL_SYNTHETIC_SEEDS = (1_000_001, 1_000_002)
_TEST_FRACTION = 0.3
# "val" comes last: for a data set without a val split it is another word for test.
_SPLITS = ("train", "test", "val")
_FOLDS = (1, 2, 3)


class MissingLabelsError(StillmotionError):
    """No video has a label, so that nothing can be trained or tested on them."""


@dataclass(frozen=True)
class TrainTestSplit:
    """A labeled data set with train and test indices.

    Attributes:
        dataset: All videos.
        folds: Indices of the train and of the test videos, for each fold.
        description: Where the split comes from.
    """

    dataset: ConcatDataset
    folds: list[tuple[np.ndarray, np.ndarray]]
    description: str

    @property
    def has_labels(self) -> bool:
        """Whether the videos have labels, and are split."""
        return bool(self.folds)

    def train_test(self) -> tuple[Subset, Subset]:
        """The train and the test videos of the first fold."""
        train, test = (Subset(self.dataset, indices) for indices in self.folds[0])
        return train, test


@dataclass(frozen=True)
class TrainTestConfig(VideoSource):
    """Labeled videos with a train/test split: the official test (or val) split, or a stratified random 70/30 split.

    Attributes:
        fold: Fold to evaluate, counted from 1, or "all" for the mean over all folds. The first if omitted.
        num_synthetic: Number of synthetic videos in the train split and in the test split. Only for --data synthetic.
        split_seed: Seed of the random 70/30 split, used if the data set has no split of its own.
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
            MissingLabelsError: No video has a label and labels are required.
        """
        self.check_path_given()
        if self.path == SYNTHETIC:
            unconfounded = replace(synthetic or SyntheticConfig(), num_videos=self.num_synthetic, confound=())
            pair = tuple(SyntheticDataset(unconfounded, seed=seed) for seed in EVAL_SYNTHETIC_SEEDS)
            return _build_split([pair], "synthetic, unconfounded")
        if self.fold == "all":
            return _all_folds(self)
        official = _official_split(self, self.fold)
        if official is not None:
            train, test, name = official
            fold = f", fold {self.fold}" if self.fold else ""
            return _build_split([(train, test)], f"official train and {name} split{fold}")
        labeled = ConcatDataset([_labeled_subset(self.with_split(fold=self.fold).open())])
        if len(labeled) == 0 and not require_labels:
            return TrainTestSplit(ConcatDataset([self.with_split().open()]), [], "no labels")
        if len(labeled) == 0:
            raise MissingLabelsError(
                f"{self.path} has no labels. Use class/video.mp4 folders or a CSV list with the columns path,label."
            )
        mask = stratified_test_mask(next(iter(labeled.labels.values())), _TEST_FRACTION, seed=self.split_seed)
        description = f"random 70/30 split, seed {self.split_seed}, stratified"
        return TrainTestSplit(labeled, [(np.flatnonzero(~mask), np.flatnonzero(mask))], description)


def stratified_test_mask(labels: np.ndarray, test_fraction: float, *, seed: int) -> np.ndarray:
    """Random stratified test mask. Each class keeps at least one training video.

    Args:
        labels: Class of each video (N,).
        test_fraction: Fraction of each class in the test split.
        seed: Random seed.

    Returns:
        Bool (N,), True for test videos.
    """
    rng = np.random.default_rng(seed)
    mask = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        mask[members[: min(round(test_fraction * len(members)), len(members) - 1)]] = True
    return mask


def available_splits(source: VideoSource, fold: int | None = None) -> dict[str, VideoDataset]:
    """Open the splits that a data set has.

    Args:
        source: The data set.
        fold: Fold, counted from 1; None is the first.

    Returns:
        Videos by split, of train, test and val. Without a val split, val is the test split, and the reverse.
    """
    splits = {}
    for split in _SPLITS:
        try:
            splits[split] = source.with_split(split, fold).open()
        except StillmotionError:  # there is no such split
            continue
    return splits


def _official_split(source: VideoSource, fold: int | None) -> tuple[Subset, Subset, str] | None:
    """Labeled train and test videos and the name of the test split; None if there is no official split."""
    source.with_split(None, fold).open()  # raises what is wrong with the data set as a whole
    splits = {name: _labeled_subset(dataset) for name, dataset in available_splits(source, fold).items()}
    train = splits.get("train")
    for name in ("test", "val"):
        test = splits.get(name)
        if train is None or test is None:
            continue
        shared = {train.name(i) for i in range(len(train))} & {test.name(i) for i in range(len(test))}
        if len(train) and len(test) and not shared:
            return train, test, name
    return None


def _all_folds(source: VideoSource) -> TrainTestSplit:
    pairs: list[tuple[Subset, ...]] = []
    test_names: list[set[str]] = []
    while (split := _official_split(source, len(pairs) + 1)) is not None:
        names = {split[1].name(i) for i in range(len(split[1]))}
        if names in test_names:  # a data set with one split returns it for any fold
            break
        pairs.append(split[:2])
        test_names.append(names)
    if len(pairs) < 2:
        raise StillmotionError(f"{source.path} has only one split. Omit --fold all.")
    return _build_split(pairs, f"all {len(pairs)} official folds")


def _build_split(pairs: Sequence[tuple[VideoDataset, ...]], description: str) -> TrainTestSplit:
    dataset = ConcatDataset([part for pair in pairs for part in pair])
    folds = [(dataset.indices_of(train), dataset.indices_of(test)) for train, test in pairs]
    return TrainTestSplit(dataset, folds, description)


def _labeled_subset(dataset: VideoDataset) -> Subset:
    """The videos with a label of any target."""
    labels = dataset.labels.values()
    known = np.any([y >= 0 for y in labels], axis=0) if labels else np.zeros(len(dataset), bool)
    return Subset(dataset, np.flatnonzero(known))


@dataclass(frozen=True)
class ClassificationSplit:
    """Train and test videos of one target for a classifier.

    Attributes:
        train: Training videos.
        test: Test videos.
        train_labels: Class ids of the training videos.
        test_labels: Class ids of the test videos; -1 for a class that no training video has.
        classes: Names of the classes of the training videos.
        target: Which label is classified.
        description: Where the split comes from.
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
    """Open train and test videos for a classifier.

    Args:
        config: The videos.
        target: Which label to classify, if videos have several.
        per_class: Number of training videos of each class, sampled by the split seed; 0 takes all.
        synthetic: How synthetic videos are generated.

    Raises:
        StillmotionError: There are fewer than two classes to train on, or no test video.
    """
    config.check_path_given()
    path, fold = config.path, config.fold
    if isinstance(fold, int) and Path(path).exists():
        try:
            config.with_split("train", fold).open()
        except StillmotionError as error:
            raise StillmotionError(f"{path} has no fold {fold} ({error}). Omit --fold or choose another.") from None
    split = config.open(synthetic)
    target = _resolve_target(target, list(split.dataset.labels), path)
    train, test = (part.select(part.labels[target] >= 0) for part in split.train_test())
    if per_class:
        train = _sample_per_class(train, target, per_class, seed=config.split_seed)
    train_labels, test_labels = train.labels[target], test.labels[target]
    trained = np.unique(train_labels)
    names = split.dataset.classes[target]
    if len(trained) < 2:
        reason = f"have the same label, {names[trained[0]]}" if len(trained) else f"have no label {target}"
        raise StillmotionError(f"{path}: all training videos {reason}. A classifier needs at least two classes.")
    if len(test_labels) == 0:
        raise StillmotionError(f"{path}: no test video has the label {target}, so nothing can be evaluated.")
    new_ids = np.full(len(names), -1)
    new_ids[trained] = np.arange(len(trained))
    return ClassificationSplit(
        train, test, new_ids[train_labels], new_ids[test_labels], [names[i] for i in trained], target, split.description
    )


def _resolve_target(target: str, targets: list[str], path: str) -> str:
    if target in targets:
        return target
    if not target and len(targets) == 1:
        return targets[0]
    reason = f"no target {target!r}" if target else "several targets"
    raise StillmotionError(f"{path}: {reason}. Choose one with --data.target: {', '.join(targets)}.")


def _sample_per_class(split: Subset, target: str, num_videos: int, *, seed: int) -> Subset:
    """Random videos of each class; all of a smaller one."""
    labels = split.labels[target]
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    sampled = [shuffled[labels[shuffled] == label][:num_videos] for label in np.unique(labels)]
    return split.select(np.sort(np.concatenate(sampled)))


def open_all_splits(source: VideoSource) -> VideoDataset:
    """Open all videos of a data set; `csv_rows` records the split of each video, so that copies keep it.

    Args:
        source: The data set.

    Returns:
        Its videos. If they do not come from a list with columns of its own, and there are splits, `csv_rows` has the
        column `split`, or `split1`, `split2`, … if the folds differ.
    """
    dataset = source.with_split().open()
    if not isinstance(dataset, PathDataset) or dataset.csv_rows:
        return dataset
    parts = [
        (f"split{fold}", split, part)
        for fold in _FOLDS
        for split, part in available_splits(source, fold).items()
        if isinstance(part, PathDataset)
    ]
    if not parts:
        return dataset
    # A published data set numbers its classes; of sub-folders, one may lack a class.
    lists = [part.classes.get(DEFAULT_TARGET, []) for *_, part in parts]
    classes = lists[0] if all(names == lists[0] for names in lists) else sorted(set().union(*lists))
    splits: dict[Path, dict[str, str]] = {}
    labels: dict[Path, int] = {}
    for column, split, part in parts:
        for path, class_name in zip(part.paths, part.class_names(), strict=True):
            splits.setdefault(path, {}).setdefault(column, split)
            labels[path] = UNKNOWN_LABEL if class_name is None else classes.index(class_name)
    columns = sorted({column for column, *_ in parts})
    if all(row.get(column) == row.get(columns[0]) for row in splits.values() for column in columns):
        rows = [{"split": row[columns[0]]} for row in splits.values()]
    else:
        rows = [{column: row.get(column, "") for column in columns} for row in splits.values()]
    return PathDataset(
        list(splits),
        labels=list(labels.values()) if classes else None,
        classes=classes,
        root=Path(source.path),
        missing_videos=dataset.missing_videos,
        csv_rows=rows,
    )
