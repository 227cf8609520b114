"""Folders and lists of videos, whole or by their splits."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from stillmotion.data.paths import UNKNOWN, PathSet, find_videos, read_labels, read_rows, split_names
from stillmotion.data.pictures import FRAME_SUFFIXES
from stillmotion.data.video import VIDEO_SUFFIXES
from stillmotion.errors import StillmotionError
from stillmotion.files import MARK


class FolderSet(PathSet):
    """All videos below a folder; a first level of sub-folders names the classes, as in class/video.mp4.

    A folder of jpg/png frames is a video too. Videos directly in the root have no class.
    """

    def __init__(self, root: str | Path) -> None:
        root = Path(root)
        paths = list(find_videos(root))
        if not paths:
            looked = " ".join(VIDEO_SUFFIXES)
            own = next((f"; {mark.parent} is stillmotion's own: name it itself" for mark in root.glob(f"*/{MARK}")), "")
            raise StillmotionError(
                f"{root}: no video found (looked for {looked} and folders of {' '.join(FRAME_SUFFIXES)}){own}"
            )
        parts = [path.relative_to(root).parts for path in paths]
        classes = sorted({part[0] for part in parts if len(part) > 1})
        number = {name: i for i, name in enumerate(classes)}
        labels = [number[part[0]] if len(part) > 1 else UNKNOWN for part in parts]
        super().__init__(paths, labels=labels if classes else None, classes=classes, root=root)


class ListSet(PathSet):
    """Videos named in a text file, one a line: `path,label`, `path label`, or a CSV with a header.

    root: where relative paths are looked for after the list's own folder.
    split_column, value: keep only the rows of a headed CSV that have this value (or one of these) in this column.
    Labels are numbers or names; in a headed CSV the columns are path (or video, file), label and class.
    A listed path that does not exist stays in the set and is an unreadable video.
    """

    def __init__(
        self,
        file: str | Path,
        root: str | Path | None = None,
        *,
        split_column: str | None = None,
        value: str | Sequence[str] | None = None,
    ) -> None:
        file = Path(file)
        rows = read_rows(file)
        labels, classes = read_labels(file, rows)  # of all rows, so that the parts of a split agree on the numbers
        kept: Sequence[int] = range(len(rows))
        if split_column is not None:
            kept = matching(file, rows, split_column, {value} if isinstance(value, str) else set(value or ()))
        folders = [file.parent, *([Path(root)] if root is not None else [])]
        super().__init__(
            [_resolve(rows[i]["path"], folders) for i in kept],
            labels=None if labels is None else [labels[i] for i in kept],
            classes=classes,
            root=folders[-1],
            rows=[rows[i] for i in kept],
        )


def open_folder(path: Path, *, split: str | None = None) -> PathSet:
    """The videos below a folder, or those below its sub-folder of a split's name; of a video file, that one."""
    if path.is_file():
        return PathSet([path], root=path.parent)
    if split is None:
        return FolderSet(path)
    for name in split_names(split):
        if (path / name).is_dir():
            return FolderSet(path / name)
    raise StillmotionError(f"{path}: no sub-folder {split!r} and no labels.csv to take the split from; leave it out")


def open_list(file: Path, root: Path | None, *, split: str | None = None, fold: int | None = None) -> ListSet:
    """The videos of a list, or those of a split by its columns split1, split2, …, split, or fold (of the held out)."""
    if split is None:
        return ListSet(file, root)
    column, values = split_column(file, read_rows(file), split, fold)
    return ListSet(file, root, split_column=column, value=values)


def split_column(
    file: object, rows: Sequence[dict[str, str]], split: str, fold: int | None
) -> tuple[str, Sequence[str]]:
    """The column of a list by which a split is told, and the values that its rows have there. file: for messages."""
    columns = rows[0]
    numbered = f"split{fold or 1}"
    if numbered in columns:
        return numbered, split_names(split)
    if "split" in columns and (fold is None or "fold" not in columns):
        return "split", split_names(split)
    if "fold" in columns:
        folds = sorted({row["fold"] for row in rows if row["fold"]})
        held_out = str(fold or 1)
        if held_out not in folds:
            raise StillmotionError(f"{file}: no fold {held_out}; it has {', '.join(folds)}")
        return "fold", [name for name in folds if (name == held_out) != (split == "train")]
    raise StillmotionError(f"{file}: no column {numbered}, split or fold to take {split!r} from; leave the split out")


def matching(file: object, rows: Sequence[dict[str, str]], column: str, values: Collection[str]) -> list[int]:
    """The numbers of the rows of a list that have one of these values in a column; an error where none has."""
    if column not in rows[0]:
        raise StillmotionError(f"{file}: no column {column!r}; it has {', '.join(rows[0])}")
    kept = [i for i, row in enumerate(rows) if row.get(column) in values]
    if not kept:
        found = ", ".join(sorted({row.get(column, "") for row in rows})[:10])
        raise StillmotionError(f"{file}: no row with {column} = {' or '.join(sorted(values))}; it has {found}")
    return kept


def _resolve(path: str, folders: Sequence[Path]) -> Path:
    candidates = [folder / path for folder in folders]  # an absolute path stays as it is
    return next((candidate for candidate in candidates if os.path.exists(candidate)), candidates[0])
