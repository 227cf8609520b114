"""Every video of a data set together with the splits it is in, so that a copy has its original's splits."""

from collections.abc import Iterator
from pathlib import Path

from stillmotion.data.paths import TARGET, UNKNOWN, PathSet, VideoSet
from stillmotion.data.videos import Located
from stillmotion.errors import StillmotionError

_FOLDS = (1, 2, 3)
# "val" comes last: where a set has no val of its own, it is another word for test.
_SPLITS = ("train", "test", "val")


def open_whole(located: Located) -> VideoSet:
    """The data set that lies there, in all its splits.

    Its `rows` have the columns of the list it comes from, or else `split` (of several folds `split1`, `split2`, …),
    where there are splits.
    """
    data = located.part().open()
    if not isinstance(data, PathSet) or data.rows:
        return data
    parts = list(_parts(located))
    if not parts:
        return data
    # A published set numbers its classes; of sub-folders, one may lack a class.
    lists = [part.classes.get(TARGET, []) for *_, part in parts]
    classes = lists[0] if all(names == lists[0] for names in lists) else sorted(set().union(*lists))
    splits: dict[Path, dict[str, str]] = {}
    labels: dict[Path, int] = {}
    for fold, split, part in parts:
        for video, name in zip(part.paths, _class_names(part), strict=True):
            splits.setdefault(video, {}).setdefault(f"split{fold}", split)
            labels[video] = UNKNOWN if name is None else classes.index(name)
    folds = sorted({f"split{fold}" for fold, *_ in parts})
    if all(row.get(fold) == row.get(folds[0]) for row in splits.values() for fold in folds):
        rows = [{"split": row[folds[0]]} for row in splits.values()]
    else:
        rows = [{fold: row.get(fold, "") for fold in folds} for row in splits.values()]
    return PathSet(
        list(splits),
        labels=list(labels.values()) if classes else None,
        classes=classes,
        root=Path(located.path),
        missing=data.missing,
        rows=rows,
    )


def _parts(located: Located) -> Iterator[tuple[int, str, PathSet]]:
    for fold in _FOLDS:
        for split in _SPLITS:
            try:
                part = located.part(split, fold).open()
            except StillmotionError:  # there is no such split
                continue
            if isinstance(part, PathSet):
                yield fold, split, part


def _class_names(part: PathSet) -> list[str | None]:
    if TARGET not in part.labels:
        return [None] * len(part)
    return [None if label == UNKNOWN else part.classes[TARGET][label] for label in part.labels[TARGET]]
