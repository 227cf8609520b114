"""What every data set is made of: the protocol, a set of paths, and the search and the lists they come from."""

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from stillmotion.data.pictures import FRAME_SUFFIXES
from stillmotion.data.video import VIDEO_SUFFIXES, Video, open_video
from stillmotion.errors import StillmotionError
from stillmotion.files import MARK

UNKNOWN = -1
TARGET = "class"
Broken = list[tuple[str, str]]  # name and reason of each video that could not be read
PATH_COLUMNS = ("path", "video", "file", "filename", "video_path", "youtube_id")
_MOST = 1_000_000  # the largest number of a class; a list has each class's name in memory
_SAME_SPLIT = {
    "val": ("val", "valid", "validation", "validate", "test"),
    "test": ("test", "val", "validation"),
}


class VideoSet(Protocol):
    """Numbered videos, with labels where they are known. Ordinary videos have the one target "class"."""

    @property
    def labels(self) -> Mapping[str, np.ndarray]:
        """From a target's name to one int per video, -1 where unknown; empty where nothing is known."""
        ...

    @property
    def classes(self) -> Mapping[str, Sequence[str]]:
        """From a target's name to the names of its values."""
        ...

    def __len__(self) -> int: ...

    def video(self, i: int) -> Video:
        """Opens video i; raises VideoError if it cannot be read."""
        ...

    def name(self, i: int) -> str:
        """A path or an id, by which messages and tables call video i."""
        ...


class Unlabelled:
    """A set whose videos have no label as a whole."""

    labels: Mapping[str, np.ndarray] = {}
    classes: Mapping[str, Sequence[str]] = {}


class PathSet:
    """Videos at given paths.

    labels: one per path, -1 where unknown; None for no labels at all. classes: their names.
    root: what the paths are taken relative to when the set is copied.
    missing: names of videos that the split lists but that are not there.
    rows: all columns of the list that the paths came from, one dict per path.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        labels: Sequence[int] | None = None,
        classes: Sequence[str] | None = None,
        root: Path | None = None,
        missing: Sequence[str] = (),
        rows: Sequence[dict[str, str]] = (),
    ) -> None:
        self.paths = list(paths)
        self.root = root
        self.missing = list(missing)
        self.rows = list(rows)
        self.labels: dict[str, np.ndarray] = {}
        self.classes: dict[str, list[str]] = {}
        if labels is not None:
            self.labels[TARGET] = np.asarray(labels, dtype=np.int64)
            self.classes[TARGET] = list(classes or [])

    def __len__(self) -> int:
        return len(self.paths)

    def video(self, i: int) -> Video:
        return open_video(self.paths[i])

    def name(self, i: int) -> str:
        return str(self.paths[i])


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """The folders below root with the names of folders and files in them, sorted; to clear the former enters none.

    Hidden names are passed over, and so is a folder that a verb filled, unless it is the root itself. Links are
    followed, and no folder is entered twice.
    """
    entered: set[tuple[int, int]] = set()

    def is_new(folder: str | Path) -> bool:
        try:
            found = os.stat(folder)
        except OSError:
            return False
        known = (found.st_dev, found.st_ino) in entered
        entered.add((found.st_dev, found.st_ino))
        return not known

    is_new(root)
    for folder, folders, names in os.walk(root, followlinks=True):
        if MARK in names and folder != os.fspath(root):
            folders.clear()
            continue
        folders[:] = sorted(n for n in folders if not n.startswith(".") and is_new(os.path.join(folder, n)))
        yield Path(folder), folders, sorted(name for name in names if not name.startswith("."))


def find_videos(root: Path) -> Iterator[Path]:
    """Video files and folders of frames below root, in sorted order; what `walk` passes over is none."""
    for folder, folders, files in walk(root):
        videos = [name for name in files if Path(name).suffix.lower() in VIDEO_SUFFIXES]
        yield from (folder / name for name in videos)
        if not videos and not folders and any(Path(name).suffix.lower() in FRAME_SUFFIXES for name in files):
            yield folder


def split_names(split: str) -> tuple[str, ...]:
    """What sets call this split, the nearest word first; one that has no val is asked for test, and the reverse."""
    return _SAME_SPLIT.get(split, (split,))


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a list as dicts with at least "path"; without a header, the last field of a line is its label.

    Names of files that are not UTF-8 are read as they are.
    """
    try:
        text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
        if "\0" in text:
            raise StillmotionError(f"{file}: no text (it has bytes of 0); save the list as UTF-8")
        first, *others = _cells(text) or [[]]
    except (OSError, csv.Error) as error:
        raise StillmotionError(f"{file}: cannot be read as a list of videos ({error})") from None
    if not first:
        raise StillmotionError(f"{file}: empty list; write one `path,label` a line")
    header = [name.strip().lower() for name in first]
    column = next((name for name in PATH_COLUMNS if name in header), None)
    if column is None:
        return [_split_line(line) for line in text.splitlines() if line.strip()]
    if not others:
        raise StillmotionError(f"{file}: a header but no rows; write one `path,label` a line")
    rows = []
    for cells in others:
        values = [*(cell.strip() for cell in cells), *[""] * len(header)]  # a row may be short
        rows.append(dict(zip(header, values, strict=False)))
        rows[-1]["path"] = rows[-1][column]
    return rows


def has_column(file: Path, name: str) -> bool:
    """Whether a CSV's first line names this column."""
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        try:
            return name in next(csv.reader(lines), [])
        except csv.Error:
            return False


def read_labels(file: object, rows: Sequence[dict[str, str]]) -> tuple[list[int] | None, list[str]]:
    """One int per row of a list and the classes' names, from the columns label (int or name) and class (name)."""
    texts = [row.get("label", "") for row in rows]
    names = [row.get("class", "") for row in rows]
    if not any(texts):
        texts = names
    if not any(texts):
        return None, []
    if all(_is_int(text) for text in texts if text):
        labels = [max(int(text), UNKNOWN) if text else UNKNOWN for text in texts]
        if max(labels) > _MOST:
            raise StillmotionError(f"{file}: a label is {max(labels)}; classes are numbered from 0, up to {_MOST:,}")
        known = dict(zip(labels, names, strict=True))
        return labels, [known.get(i) or str(i) for i in range(max(labels) + 1)]
    classes = sorted({text for text in texts if text})
    number = {name: i for i, name in enumerate(classes)}
    return [number.get(text, UNKNOWN) for text in texts], classes


def _cells(text: str) -> list[list[str]]:
    """Of lines that hold something; a quoted cell may hold the end of a line."""
    rows = csv.reader(io.StringIO(text, newline=""))
    return [row for row in rows if len(row) > 1 or (row and row[0].strip())]


def _split_line(line: str) -> dict[str, str]:
    """`path,label`, or `path label` where there is no comma; a path alone has no label."""
    path, *label = (part.strip() for part in line.strip().rsplit("," if "," in line else None, 1))
    if not label or Path(label[0]).suffix.lower() in VIDEO_SUFFIXES:
        return {"path": line.strip()}
    return {"path": path, "label": label[0]}


def _is_int(text: str) -> bool:
    return re.fullmatch("-?[0-9]{1,18}", text) is not None
