"""Data sets: numbered videos, with labels where they are known.

A data set is anything with `__len__`, `video(i)` and `name(i)`. Folders and lists are here, published layouts in
`layouts.py`; `open_dataset` tells them apart.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

from stillmotion.data.k200 import k200
from stillmotion.data.layouts import HMDB51, UCF101, Diving48, Gym99, Kinetics, SSv2
from stillmotion.data.paths import UNKNOWN, PathSet, VideoSet, find_videos, read_labels, read_rows
from stillmotion.data.video import FRAME_SUFFIXES, VIDEO_SUFFIXES
from stillmotion.errors import StillmotionError

__all__ = [
    "HMDB51",
    "UCF101",
    "Diving48",
    "FolderSet",
    "Gym99",
    "Kinetics",
    "ListSet",
    "PathSet",
    "SSv2",
    "VideoSet",
    "find_lists",
    "open_dataset",
]

KINDS = ("auto", "folder", "list", "ucf101", "hmdb51", "kinetics", "k200", "ssv2", "gym99", "diving48")
# Files by which the folder of a set's lists is known.
_MARKS = {
    "ucf101": "classInd.txt",
    "hmdb51": "*_test_split1.txt",
    "ssv2": "*something*labels.json",
    "gym99": "gym99_*.txt",
    "diving48": "Diving48*.json",
}
_SAME_SPLIT = {
    "val": ("val", "valid", "validation", "validate", "test"),
    "test": ("test", "val", "validation"),
}


class FolderSet(PathSet):
    """All videos below a folder; a first level of sub-folders names the classes, as in class/video.mp4.

    A folder of jpg/png frames is a video too. Videos directly in the root have no class.
    """

    def __init__(self, root: str | Path) -> None:
        root = Path(root)
        paths = list(find_videos(root))
        if not paths:
            looked = " ".join(VIDEO_SUFFIXES)
            raise StillmotionError(
                f"{root}: no video found (looked for {looked} and folders of {' '.join(FRAME_SUFFIXES)})"
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
        labels, classes = read_labels(rows)  # of all rows, so that the parts of a split agree on the numbers
        kept: Sequence[int] = range(len(rows))
        if split_column is not None:
            kept = _matching(file, rows, split_column, {value} if isinstance(value, str) else set(value or ()))
        folders = [file.parent, *([Path(root)] if root is not None else [])]
        super().__init__(
            [_resolve(rows[i]["path"], folders) for i in kept],
            labels=None if labels is None else [labels[i] for i in kept],
            classes=classes,
            root=folders[-1],
            rows=[rows[i] for i in kept],
        )


def open_dataset(
    path: str | Path,
    *,
    kind: str = "auto",
    split: str | None = None,
    fold: int | None = None,
    annotations: str | Path | None = None,
) -> VideoSet:
    """The data set at a path.

    path: a folder of videos, a list (CSV or text), or one video. A `labels.csv` in the folder is used by itself.
    kind: one of auto, folder, list, ucf101, hmdb51, kinetics, k200, ssv2, gym99, diving48; auto goes by the
        files that are there.
        k200 is K200-40k, chosen from a Kinetics folder by the rule in `k200.py`.
    split: train, test or val; None is every video. fold: which of several splits (the first by default).
    annotations: folder or file of the published lists, where they are not beside the videos.
    """
    path = Path(path)
    if kind not in KINDS:
        raise StillmotionError(f"kind is {kind!r}; choose one of {', '.join(KINDS)}")
    if not path.exists():
        raise StillmotionError(f"{path}: no such file or folder; give a folder of videos or a list of them")
    if kind == "k200":
        kinetics = open_dataset(path, split=split, fold=fold, annotations=annotations)
        assert isinstance(kinetics, PathSet)
        return k200(kinetics)
    notes = Path(annotations) if annotations is not None else None
    if notes is not None and not notes.exists():
        raise StillmotionError(f"{notes}: no such file or folder; annotations are the data set's own lists")
    if kind == "auto":
        kind, notes = _detect(path, notes)
    elif notes is None and kind in _MARKS:
        _, notes = find_lists(path, [kind]) or (kind, None)
    if kind == "list":
        return _listed(notes or path, path if path.is_dir() else None, split, fold)
    if kind == "folder":
        return _folder(path, split)
    return _published(kind, path, notes or path, split, fold or 1)


def _detect(path: Path, notes: Path | None) -> tuple[str, Path | None]:
    """The kind of what is at the path, and the file or folder that describes it."""
    if path.is_file():
        if path.suffix.lower() in VIDEO_SUFFIXES:
            return "folder", None
        return ("kinetics" if _is_kinetics(path) else "list"), notes or path
    if notes is not None and notes.is_file():
        for known, mark in _MARKS.items():
            if notes.match(mark):
                return known, notes
        if notes.suffix.lower() == ".json":
            return "ssv2", notes
        return ("kinetics" if _is_kinetics(notes) else "list"), notes
    if notes is None and (path / "labels.csv").is_file():
        return "list", path / "labels.csv"
    found = find_lists(path if notes is None else notes, list(_MARKS), beside=notes is None)
    if found is not None:
        return found
    if notes is not None:
        raise StillmotionError(f"{notes}: no known annotations there; say which by kind ({', '.join(KINDS[2:])})")
    return "folder", None


def find_lists(path: Path, kinds: Sequence[str], *, beside: bool = True) -> tuple[str, Path] | None:
    """The first of these kinds whose lists are in a folder, beside it or one level below, and where they are."""
    folders = [path, *([path.parent] if beside else [])]
    if path.is_dir():
        folders += sorted(child for child in path.iterdir() if child.is_dir())
    for folder in folders:
        for kind in kinds:
            if any(folder.glob(_MARKS[kind])):
                return kind, folder
    return None


def _published(kind: str, path: Path, notes: Path, split: str | None, fold: int) -> VideoSet:
    if kind in ("ucf101", "hmdb51"):
        layout = UCF101 if kind == "ucf101" else HMDB51
        if split is not None:
            return layout(path, notes, split=fold, train=split == "train")
        parts = [layout(path, notes, split=fold, train=train) for train in (True, False)]
        return _joined(parts)
    if kind in ("gym99", "diving48"):
        halved = Gym99 if kind == "gym99" else Diving48
        folder = notes if notes.is_dir() else notes.parent
        if split is not None:
            return halved(path, folder, train=split == "train")
        return _joined([halved(path, folder, train=train) for train in (True, False)])
    if kind == "kinetics":
        root = path.parent if path.is_file() else path
        if notes.is_dir():
            notes = _only(notes, [f"*{name}*.csv" for name in _SAME_SPLIT.get(split or "", (split or "",))])
        return Kinetics(root, notes, split=split)
    folder = notes if notes.is_dir() else notes.parent
    labels = _only(folder, ["*labels.json"])
    if notes.is_dir():
        names = _SAME_SPLIT.get(split or "", (split or "train",))
        notes = _only(folder, [f"*-{name}.json" for name in names] + [f"{name}.json" for name in names])
    return SSv2(path, labels, notes)


def _listed(file: Path, root: Path | None, split: str | None, fold: int | None) -> ListSet:
    if split is None:
        return ListSet(file, root)
    columns = read_rows(file)[0]
    numbered = f"split{fold or 1}"
    if numbered in columns:
        return ListSet(file, root, split_column=numbered, value=_SAME_SPLIT.get(split, (split,)))
    if "split" in columns and (fold is None or "fold" not in columns):
        return ListSet(file, root, split_column="split", value=_SAME_SPLIT.get(split, (split,)))
    if "fold" in columns:
        folds = sorted({row["fold"] for row in read_rows(file)})
        held_out = str(fold or 1)
        if held_out not in folds:
            raise StillmotionError(f"{file}: no fold {held_out}; it has {', '.join(folds)}")
        value = [name for name in folds if (name == held_out) != (split == "train")]
        return ListSet(file, root, split_column="fold", value=value)
    raise StillmotionError(f"{file}: no column {numbered}, split or fold to take {split!r} from; leave the split out")


def _folder(path: Path, split: str | None) -> VideoSet:
    if path.is_file():
        return PathSet([path], root=path.parent)
    if split is None:
        return FolderSet(path)
    for name in _SAME_SPLIT.get(split, (split,)):
        if (path / name).is_dir():
            return FolderSet(path / name)
    raise StillmotionError(f"{path}: no sub-folder {split!r} and no labels.csv to take the split from; leave it out")


def _joined(parts: Sequence[PathSet]) -> PathSet:
    paths = [path for part in parts for path in part.paths]
    labels = [int(label) for part in parts for label in part.labels["class"]]
    missing = [name for part in parts for name in part.missing]
    return PathSet(paths, labels=labels, classes=parts[0].classes["class"], root=parts[0].root, missing=missing)


def _only(folder: Path, patterns: Sequence[str]) -> Path:
    for pattern in patterns:
        files = sorted(folder.glob(pattern))
        if files:
            return files[0]
    raise StillmotionError(f"{folder}: no file like {patterns[0]}; name it by annotations")


def _is_kinetics(file: Path) -> bool:
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        return "youtube_id" in next(csv.reader(lines), [])


def _matching(file: Path, rows: Sequence[dict[str, str]], column: str, values: set[str]) -> list[int]:
    if column not in rows[0]:
        raise StillmotionError(f"{file}: no column {column!r}; it has {', '.join(rows[0])}")
    kept = [i for i, row in enumerate(rows) if row.get(column) in values]
    if not kept:
        found = ", ".join(sorted({row.get(column, "") for row in rows})[:10])
        raise StillmotionError(f"{file}: no row with {column} = {' or '.join(sorted(values))}; it has {found}")
    return kept


def _resolve(path: str, folders: Sequence[Path]) -> Path:
    candidates = [folder / path for folder in folders]  # an absolute path stays as it is
    return next((candidate for candidate in candidates if candidate.exists()), candidates[0])
