"""Folders and lists of videos, whole or by their splits."""

import csv
import io
import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from stillmotion.data.datasets.base import UNKNOWN_LABEL, PathDataset
from stillmotion.data.video import VIDEO_SUFFIXES
from stillmotion.errors import StillmotionError

PATH_COLUMNS = ("path", "video", "file", "filename", "video_path", "youtube_id")
_MAX_CLASS_ID = 1_000_000  # the largest number of a class; a list has each class's name in memory
_SPLIT_ALIASES = {
    "val": ("val", "valid", "validation", "validate", "test"),
    "test": ("test", "val", "validation"),
}


def split_aliases(split: str) -> tuple[str, ...]:
    """What sets call this split, the nearest word first; one that has no val is asked for test, and the reverse."""
    return _SPLIT_ALIASES.get(split, (split,))


def read_csv_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a list as dicts with at least "path"; without a header, the last field of a line is its label.

    Names of files that are not UTF-8 are read as they are.
    """
    try:
        text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
        if "\0" in text:
            raise StillmotionError(f"{file}: no text (it has bytes of 0); save the list as UTF-8")
        first, *others = _parse_cells(text) or [[]]
    except (OSError, csv.Error) as error:
        raise StillmotionError(f"{file}: cannot be read as a list of videos ({error})") from None
    if not first:
        raise StillmotionError(f"{file}: empty list; write one `path,label` a line")
    header = [name.strip().lower() for name in first]
    column = next((name for name in PATH_COLUMNS if name in header), None)
    if column is None:
        return [_parse_line(line) for line in text.splitlines() if line.strip()]
    if not others:
        raise StillmotionError(f"{file}: a header but no rows; write one `path,label` a line")
    rows = []
    for cells in others:
        values = [*(cell.strip() for cell in cells), *[""] * len(header)]  # a row may be short
        rows.append(dict(zip(header, values, strict=False)))
        rows[-1]["path"] = rows[-1][column]
    return rows


def csv_has_column(file: Path, name: str) -> bool:
    """Whether a CSV's first line names this column."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        try:
            return name in next(csv.reader(lines), [])
        except csv.Error:
            return False


def parse_labels(file: object, rows: Sequence[dict[str, str]]) -> tuple[list[int] | None, list[str]]:
    """One int per row of a list and the classes' names, from the columns label (int or name) and class (name)."""
    texts = [row.get("label", "") for row in rows]
    names = [row.get("class", "") for row in rows]
    if not any(texts):
        texts = names
    if not any(texts):
        return None, []
    if all(_is_int(text) for text in texts if text):
        labels = [max(int(text), UNKNOWN_LABEL) if text else UNKNOWN_LABEL for text in texts]
        if max(labels) > _MAX_CLASS_ID:
            raise StillmotionError(
                f"{file}: a label is {max(labels)}; classes are numbered from 0, up to {_MAX_CLASS_ID:,}"
            )
        known = dict(zip(labels, names, strict=True))
        return labels, [known.get(i) or str(i) for i in range(max(labels) + 1)]
    classes = sorted({text for text in texts if text})
    number = {name: i for i, name in enumerate(classes)}
    return [number.get(text, UNKNOWN_LABEL) for text in texts], classes


def _parse_cells(text: str) -> list[list[str]]:
    """Of lines that hold something; a quoted cell may hold the end of a line."""
    rows = csv.reader(io.StringIO(text, newline=""))
    return [row for row in rows if len(row) > 1 or (row and row[0].strip())]


def _parse_line(line: str) -> dict[str, str]:
    """`path,label`, or `path label` where there is no comma; a path alone has no label."""
    path, *label = (part.strip() for part in line.strip().rsplit("," if "," in line else None, 1))
    if not label or Path(label[0]).suffix.lower() in VIDEO_SUFFIXES:
        return {"path": line.strip()}
    return {"path": path, "label": label[0]}


def _is_int(text: str) -> bool:
    return re.fullmatch("-?[0-9]{1,18}", text) is not None


class ListDataset(PathDataset):
    """Videos named in a text file, one a line: `path,label`, `path label`, or a CSV with a header.

    root: where relative paths are looked for after the list's own folder.
    split_column, split_values: keep only the rows of a headed CSV that have this value (or one of these) in this column.
    Labels are numbers or names; in a headed CSV the columns are path (or video, file), label and class.
    A listed path that does not exist stays in the set and is an unreadable video.
    """

    def __init__(
        self,
        file: str | Path,
        root: str | Path | None = None,
        *,
        split_column: str | None = None,
        split_values: str | Sequence[str] | None = None,
    ) -> None:
        file = Path(file)
        rows = read_csv_rows(file)
        labels, classes = parse_labels(file, rows)  # of all rows, so that the parts of a split agree on the numbers
        kept: Sequence[int] = range(len(rows))
        if split_column is not None:
            kept = select_rows(
                file, rows, split_column, {split_values} if isinstance(split_values, str) else set(split_values or ())
            )
        folders = [file.parent, *([Path(root)] if root is not None else [])]
        super().__init__(
            [_resolve_path(rows[i]["path"], folders) for i in kept],
            labels=None if labels is None else [labels[i] for i in kept],
            classes=classes,
            root=folders[-1],
            csv_rows=[rows[i] for i in kept],
        )


def open_list_dataset(
    file: Path, root: Path | None, *, split: str | None = None, fold: int | None = None
) -> ListDataset:
    """The videos of a list, or those of a split by its columns split1, split2, …, split, or fold (of the held out)."""
    if split is None:
        return ListDataset(file, root)
    column, values = find_split_column(file, read_csv_rows(file), split, fold)
    return ListDataset(file, root, split_column=column, split_values=values)


def find_split_column(
    file: object, rows: Sequence[dict[str, str]], split: str, fold: int | None
) -> tuple[str, Sequence[str]]:
    """The column of a list by which a split is told, and the values that its rows have there. file: for messages."""
    columns = rows[0]
    numbered = f"split{fold or 1}"
    if numbered in columns:
        return numbered, split_aliases(split)
    if "split" in columns and (fold is None or "fold" not in columns):
        return "split", split_aliases(split)
    if "fold" in columns:
        folds = sorted({row["fold"] for row in rows if row["fold"]})
        held_out = str(fold or 1)
        if held_out not in folds:
            raise StillmotionError(f"{file}: no fold {held_out}; it has {', '.join(folds)}")
        return "fold", [name for name in folds if (name == held_out) != (split == "train")]
    raise StillmotionError(f"{file}: no column {numbered}, split or fold to take {split!r} from; leave the split out")


def select_rows(file: object, rows: Sequence[dict[str, str]], column: str, values: Collection[str]) -> list[int]:
    """The numbers of the rows of a list that have one of these values in a column; an error where none has."""
    if column not in rows[0]:
        raise StillmotionError(f"{file}: no column {column!r}; it has {', '.join(rows[0])}")
    kept = [i for i, row in enumerate(rows) if row.get(column) in values]
    if not kept:
        found = ", ".join(sorted({row.get(column, "") for row in rows})[:10])
        raise StillmotionError(f"{file}: no row with {column} = {' or '.join(sorted(values))}; it has {found}")
    return kept


def _resolve_path(path: str, folders: Sequence[Path]) -> Path:
    candidates = [folder / path for folder in folders]  # an absolute path stays as it is
    return next((candidate for candidate in candidates if os.path.exists(candidate)), candidates[0])
