"""Labelled videos for a classifier: the halves of a set, one label of each video, and the classes that are trained."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillmotion.config import DataConfig
from stillmotion.data.sets import open_dataset
from stillmotion.errors import StillmotionError
from stillmotion.evaluate.split import part
from stillmotion.evaluate.subset import Subset
from stillmotion.train.finetune_config import LabelledConfig


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


def open_labelled(config: LabelledConfig) -> Labelled:
    """The halves of the set that a configuration names; an error if there is nothing to tell apart."""
    if not config.path:
        raise StillmotionError("no videos given; add --data FOLDER (or --data synthetic to try)")
    path, kind, fold, notes = config.path, config.kind, config.fold, config.annotations
    if fold is not None and Path(path).exists():
        try:
            open_dataset(path, kind=kind, split="train", fold=fold, annotations=notes)
        except StillmotionError as error:
            raise StillmotionError(
                f"{path} has no fold {fold} ({error}); leave the fold out or choose another"
            ) from None
    drawn = DataConfig(synthetic=config.synthetic)
    count = config.synthetic.videos
    parted = part(path, drawn, kind=kind, fold=fold, annotations=notes, videos=count, seed=config.seed)
    target = _target(config, list(parted.videos.labels))
    train, test = (_known(half, target) for half in parted.halves())
    if config.per_class:
        train = _some_of_each(train, target, config.per_class, seed=config.seed)
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


def _target(config: LabelledConfig, targets: list[str]) -> str:
    if config.target in targets:
        return config.target
    if not config.target and len(targets) == 1:
        return targets[0]
    said = f"there is no label {config.target!r}" if config.target else "videos have several labels"
    raise StillmotionError(f"{config.path}: {said}; choose one of {', '.join(targets)} (--data.target)")


def _known(half: Subset, target: str) -> Subset:
    return Subset(half.videos, half.chosen[half.labels[target] >= 0])


def _some_of_each(half: Subset, target: str, number: int, *, seed: int) -> Subset:
    """So many videos of each class, by chance; all of a smaller one."""
    labels = half.labels[target]
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    taken = [shuffled[labels[shuffled] == label][:number] for label in np.unique(labels)]
    return Subset(half.videos, half.chosen[np.sort(np.concatenate(taken))])
