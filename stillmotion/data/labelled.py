"""Labelled videos for a classifier: the halves of a set, one label of each video, and the classes that are trained."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillmotion.data.halves import Halves
from stillmotion.data.subset import Subset
from stillmotion.data.synthetic import SyntheticConfig
from stillmotion.errors import StillmotionError


@dataclass(frozen=True)
class Labelled:
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
    how: str


def open_labelled(
    halves: Halves, *, target: str = "", per_class: int = 0, drawn: SyntheticConfig | None = None
) -> Labelled:
    """The halves of a set for a classifier; an error if there is nothing to tell apart.

    target: which label, where videos have several. per_class: training videos of each class, by the halves' seed;
        0 takes all. drawn: as for `Halves.open`.
    """
    halves.check_given()
    path, fold = halves.path, halves.fold
    if isinstance(fold, int) and Path(path).exists():
        try:
            halves.part("train", fold).open()
        except StillmotionError as error:
            raise StillmotionError(
                f"{path} has no fold {fold} ({error}); leave the fold out or choose another"
            ) from None
    parted = halves.open(drawn)
    target = _target(target, list(parted.videos.labels), path)
    train, test = (_known(half, target) for half in parted.halves())
    if per_class:
        train = _some_of_each(train, target, per_class, seed=halves.seed)
    train_y, test_y = train.labels[target], test.labels[target]
    trained = np.unique(train_y)
    names = parted.videos.classes[target]
    if len(trained) < 2:
        only = f"have the same label, {names[trained[0]]}" if len(trained) else f"have no label {target}"
        raise StillmotionError(f"all training videos of {path} {only}; a classifier needs at least two classes")
    if len(test_y) == 0:
        raise StillmotionError(f"no test video of {path} has a label {target}; nothing could be measured")
    number = np.full(len(names), -1)
    number[trained] = np.arange(len(trained))
    return Labelled(train, test, number[train_y], number[test_y], [names[i] for i in trained], target, parted.how)


def _target(target: str, targets: list[str], path: str) -> str:
    if target in targets:
        return target
    if not target and len(targets) == 1:
        return targets[0]
    said = f"there is no label {target!r}" if target else "videos have several labels"
    raise StillmotionError(f"{path}: {said}; choose one of {', '.join(targets)} (--data.target)")


def _known(half: Subset, target: str) -> Subset:
    return Subset(half.videos, half.chosen[half.labels[target] >= 0])


def _some_of_each(half: Subset, target: str, number: int, *, seed: int) -> Subset:
    """So many videos of each class, by chance; all of a smaller one."""
    labels = half.labels[target]
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    taken = [shuffled[labels[shuffled] == label][:number] for label in np.unique(labels)]
    return Subset(half.videos, half.chosen[np.sort(np.concatenate(taken))])
