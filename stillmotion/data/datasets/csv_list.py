"""Rows and labels of a CSV or text list of videos; `ListDataset`, choice of the split column."""

import csv
import io
import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from stillmotion.data.datasets.base import UNKNOWN_LABEL, PathDataset
from stillmotion.data.datasets.list_files import MAX_CLASS_ID, read_list_text
from stillmotion.data.video import VIDEO_SUFFIXES
from stillmotion.errors import StillmotionError

PATH_COLUMNS = ("path", "video", "file", "filename", "video_path", "youtube_id")
_SPLIT_ALIASES = {"val": ("val", "valid", "validation", "validate", "test"), "test": ("test", "val", "validation")}


def split_aliases(split: str) -> tuple[str, ...]:
    """Names that data sets use for a split, the best first. Without a val split test is used, and the reverse.

    Args:
        split: Name of the split.
    """
    return _SPLIT_ALIASES.get(split, (split,))


def read_csv_rows(file: Path) -> list[dict[str, str]]:
    """Read the rows of a list.

    Args:
        file: CSV with a header, or lines `path,label` or `path label`. Bytes that are not UTF-8 are kept.

    Returns:
        A dict for each row, with at least "path". Without a header the last field of a line is "label".

    Raises:
        StillmotionError: The file is empty or no text.
    """
    return [row for _, row in read_numbered_csv_rows(file)]


def read_numbered_csv_rows(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Read the rows of a list as `read_csv_rows`, each with the number of its (last) line, for errors.

    Args:
        file: The list.
    """
    text = read_list_text(file)
    if "\0" in text:
        raise StillmotionError(f"{file}: not a text file (contains null bytes). Save the list as UTF-8.")
    try:
        first, *others = _parse_cells(text) or [(1, [])]
    except csv.Error as error:
        raise StillmotionError(f"{file}: cannot be read as a list of videos ({error}).") from None
    if not first[1]:
        raise StillmotionError(f"{file}: empty list. Write one `path,label` per line.")
    header = [name.strip().lower() for name in first[1]]
    column = next((name for name in PATH_COLUMNS if name in header), None)
    if column is None:
        return [(i, _parse_line(line)) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not others:
        raise StillmotionError(f"{file}: a header but no rows. Write one `path,label` per line.")
    rows = []
    for number, cells in others:
        values = [*(cell.strip() for cell in cells), *[""] * len(header)]  # a row may be short
        row = dict(zip(header, values, strict=False))
        rows.append((number, row | {"path": row[column]}))
    return rows


def csv_has_column(file: Path, name: str) -> bool:
    """Whether a CSV file has a column.

    Args:
        file: The file.
        name: Name of the column.
    """
    try:
        return name in next(csv.reader(io.StringIO(read_list_text(file), newline="")), [])
    except csv.Error:
        return False


def parse_labels(file: object, rows: Sequence[dict[str, str]]) -> tuple[list[int] | None, list[str]]:
    """Class ids and names from the columns label (int or name) and class (name).

    Args:
        file: The list, for messages.
        rows: Its rows.

    Returns:
        One class id per row, -1 where unknown, or None if there are no labels; and the class names.

    Raises:
        StillmotionError: A class id is too large.
    """
    texts = [row.get("label", "") for row in rows]
    names = [row.get("class", "") for row in rows]
    if not any(texts):
        texts = names
    if not any(texts):
        return None, []
    if all(_is_int(text) for text in texts if text):
        labels = [max(int(text), UNKNOWN_LABEL) if text else UNKNOWN_LABEL for text in texts]
        if max(labels) > MAX_CLASS_ID:
            raise StillmotionError(
                f"{file}: label {max(labels)} is too large; class ids must be between 0 and {MAX_CLASS_ID:,}."
            )
        name_by_label = dict(zip(labels, names, strict=True))
        return labels, [name_by_label.get(i) or str(i) for i in range(max(labels) + 1)]
    classes = sorted({text for text in texts if text})
    label_by_class = {name: i for i, name in enumerate(classes)}
    return [label_by_class.get(text, UNKNOWN_LABEL) for text in texts], classes


def _parse_cells(text: str) -> list[tuple[int, list[str]]]:
    """Line number and cells of the lines that are not blank; a quoted cell may contain a line break."""
    rows = csv.reader(io.StringIO(text, newline=""))
    return [(rows.line_num, row) for row in rows if len(row) > 1 or (row and row[0].strip())]


def _parse_line(line: str) -> dict[str, str]:
    """`path,label`, or `path label` if there is no comma; a path alone has no label."""
    path, *label = (part.strip() for part in line.strip().rsplit("," if "," in line else None, 1))
    if not label or Path(label[0]).suffix.lower() in VIDEO_SUFFIXES:
        return {"path": line.strip()}
    return {"path": path, "label": label[0]}


def _is_int(text: str) -> bool:
    return re.fullmatch("-?[0-9]{1,18}", text) is not None


class ListDataset(PathDataset):
    """Videos of a list, one per line: `path,label`, `path label`, or a CSV with a header.

    Labels are numbers or names; the columns of a CSV are path (or video, file), label and class. A path that does not
    exist stays in the data set as an unreadable video.

    Args:
        file: The list.
        root: Folder of relative paths that do not exist in the folder of the list.
        split_column: Column that selects rows.
        split_values: Take only the rows with this value, or one of these, in the split column.
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
        labels, classes = parse_labels(file, rows)  # of all rows, so that all splits have the same class ids
        selected: Sequence[int] = range(len(rows))
        if split_column is not None:
            selected = select_rows(
                file, rows, split_column, {split_values} if isinstance(split_values, str) else set(split_values or ())
            )
        folders = [file.parent, *([Path(root)] if root is not None else [])]
        super().__init__(
            [_resolve_path(rows[i]["path"], folders) for i in selected],
            labels=None if labels is None else [labels[i] for i in selected],
            classes=classes,
            root=folders[-1],
            csv_rows=[rows[i] for i in selected],
        )


def open_list_dataset(
    file: Path, root: Path | None, *, split: str | None = None, fold: int | None = None
) -> ListDataset:
    """Open the videos of a list, or those of a split.

    Args:
        file: The list.
        root: Folder of relative paths that do not exist in the folder of the list.
        split: Name of the split; None takes all rows. It is selected by the columns split1, split2, …, split, or fold.
        fold: Fold, counted from 1; None is the first.
    """
    if split is None:
        return ListDataset(file, root)
    column, values = find_split_column(file, read_csv_rows(file), split, fold)
    return ListDataset(file, root, split_column=column, split_values=values)


def find_split_column(
    file: object, rows: Sequence[dict[str, str]], split: str, fold: int | None
) -> tuple[str, Sequence[str]]:
    """Find the CSV column that defines a split (split1, split or fold), and the values that select it.

    Args:
        file: The list, for messages.
        rows: Its rows.
        split: Name of the split.
        fold: Fold, counted from 1; None is the first. In the column fold, it is the number of the test videos.

    Raises:
        StillmotionError: There is no such column or fold.
    """
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
            raise StillmotionError(f"{file}: no fold {held_out}; it has {_format_values(folds)}.")
        return "fold", [name for name in folds if (name == held_out) != (split == "train")]
    raise StillmotionError(f"{file}: no column {numbered}, split or fold to select {split!r} by. Omit --split.")


def select_rows(file: object, rows: Sequence[dict[str, str]], column: str, values: Collection[str]) -> list[int]:
    """Indices of the rows that have one of these values in a column.

    Args:
        file: The list, for messages.
        rows: Its rows.
        column: Name of the column.
        values: Values to select.

    Raises:
        StillmotionError: There is no such column, or no such row.
    """
    if column not in rows[0]:
        raise StillmotionError(f"{file}: no column {column!r}; it has {_format_values(rows[0])}.")
    selected = [i for i, row in enumerate(rows) if row.get(column) in values]
    if not selected:
        existing = _format_values(sorted({row.get(column, "") for row in rows})[:10])
        raise StillmotionError(f"{file}: no row with {column} = {' or '.join(sorted(values))}; it has {existing}.")
    return selected


def _format_values(values: Iterable[str]) -> str:
    """Values of a list in one line, whatever characters they have."""
    return ", ".join(value if value.isprintable() else repr(value) for value in values)


def _resolve_path(path: str, folders: Sequence[Path]) -> Path:
    candidates = [folder / path for folder in folders]  # an absolute path stays as it is
    return next((candidate for candidate in candidates if os.path.exists(candidate)), candidates[0])
