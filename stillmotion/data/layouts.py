"""The lists of labelled public sets as they are published: UCF101, HMDB51, Kinetics, SSv2, Gym99 and Diving48.

A set in halves has a function `read(folder, *, train, fold)` that gives the `Listing` of one.

Videos are found by name without suffix, so that re-encoded copies serve too. What a list names but the disk lacks (dead
links, part of the classes) is left out and named in `missing`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stillmotion.data.paths import UNKNOWN, PathSet, find_videos, read_rows
from stillmotion.errors import StillmotionError


class Listing(NamedTuple):
    """What a published list says: of each video the names it may have, without suffix, and its label; all classes.

    A name is a path below the set's folder, or the end of one.
    """

    entries: Sequence[tuple[tuple[str, ...], int]]
    classes: list[str]


def names_below(root: str | Path) -> dict[str, Path]:
    """The videos below a folder by their path without suffix, and by every end of it; the first of equal ends."""
    root = Path(root)
    found: dict[str, Path] = {}
    for path in find_videos(existing(root)):
        parts = (path.with_suffix("") if path.is_file() else path).relative_to(root).parts
        found["/".join(parts)] = path
        for start in range(1, len(parts)):
            found.setdefault("/".join(parts[start:]), path)
    return found


def locate(found: Mapping[str, Path], listing: Listing) -> list[Path | None]:
    """Where each listed video is, by `names_below` a folder; None where it is not."""
    return [next((found[name] for name in names if name in found), None) for names, _ in listing.entries]


class Listed(PathSet):
    """The videos of a list that are there, anywhere below a folder."""

    def __init__(self, root: str | Path, listing: Listing) -> None:
        paths, labels, missing = [], [], []
        for (names, label), path in zip(listing.entries, locate(names_below(root), listing), strict=True):
            if path is None:
                missing.append(names[0])
            else:
                paths.append(path)
                labels.append(label)
        if not paths:
            first = f"; the first is {missing[0]}" if missing else ""
            raise StillmotionError(f"{root}: none of the {len(missing)} videos of the split is there{first}")
        super().__init__(paths, labels=labels, classes=listing.classes, root=Path(root), missing=missing)


def ucf101_list(folder: Path, *, train: bool, fold: int) -> Listing:
    """classInd.txt, and trainlist01.txt or testlist01.txt of the first of three folds."""
    numbered = [line.split() for line in read_lines(folder / "classInd.txt")]
    classes = [name for _, name in sorted(numbered, key=lambda pair: int(pair[0]))]
    number = {name: i for i, name in enumerate(classes)}
    lines = read_lines(folder / f"{'train' if train else 'test'}list{fold:02d}.txt")
    names = [_stem(line.split()[0]) for line in lines]
    return Listing([((name, name.split("/")[-1]), number[name.split("/")[0]]) for name in names], classes)


def hmdb51_list(folder: Path, *, train: bool | None, fold: int) -> Listing:
    """<class>_test_split1.txt of the first of three folds: 1 is training, 2 is test, 0 is unused; None takes all."""
    marks = {True: "1", False: "2", None: "012"}[train]
    ending = f"_test_split{fold}.txt"
    files = sorted(existing(folder).glob(f"*{ending}"))
    if not files:
        raise StillmotionError(f"{folder}: no *{ending}; splits are 1 to 3")
    classes = [file.name.removesuffix(ending) for file in files]
    entries = [
        ((f"{classes[label]}/{_stem(line.split()[0])}", _stem(line.split()[0])), label)
        for label, file in enumerate(files)
        for line in read_lines(file)
        if line.split()[1] in marks
    ]
    return Listing(entries, classes)


def kinetics_list(file: Path, *, split: str | None = None) -> Listing:
    """The rows of a CSV (label, youtube_id, time_start, time_end, split), or those of one split where it tells them.

    Files are <id>_<start>_<end>.mp4 with six digits each, or <id>.mp4.
    """
    rows = read_rows(file)
    classes = sorted({row["label"] for row in rows if row.get("label")})
    number = {name: i for i, name in enumerate(classes)}
    if split is not None and "split" in rows[0]:
        rows = [row for row in rows if row["split"][:3] == split[:3]]
        if not rows:
            raise StillmotionError(f"{file}: no row of split {split!r}")
    entries = []
    for row in rows:
        name = row["youtube_id"]
        timed = f"{name}_{int(row['time_start']):06d}_{int(row['time_end']):06d}"
        entries.append(((timed, name), number.get(row.get("label", ""), UNKNOWN)))
    return Listing(entries, classes)


def ssv2_list(labels: Path, annotations: Path) -> Listing:
    """The ids of a split with their templates, which `labels` numbers; test videos have no label."""
    numbers = {name: int(label) for name, label in _json(labels).items()}
    classes = sorted(numbers, key=lambda name: numbers[name])
    entries = []
    for item in _json(annotations):
        template = item.get("template", "").replace("[", "").replace("]", "")
        if template and template not in numbers:
            raise StillmotionError(f"{annotations}: template {template!r} of video {item['id']} is not in {labels}")
        entries.append(((str(item["id"]),), numbers.get(template, UNKNOWN)))
    return Listing(entries, classes)


def gym99_list(folder: Path, *, train: bool, fold: int = 1) -> Listing:
    """Lines "<id> <label>", the same for any fold; classes have names where gym99_categories.txt is there."""
    file = _last(folder, f"gym99_{'train' if train else 'val'}*.txt")
    pairs = [line.split() for line in read_lines(file)]
    names = folder / "gym99_categories.txt"
    if names.exists():
        classes = [line.split(";")[-1].strip() for line in read_lines(names)]
    else:
        classes = [str(i) for i in range(max(int(label) for _, label in pairs) + 1)]
    return Listing([((name,), int(label)) for name, label in pairs], classes)


def diving48_list(folder: Path, *, train: bool, fold: int = 1) -> Listing:
    """Items with vid_name and label, the same for any fold; a class is the four parts of a dive in the vocabulary."""
    items = _json(_last(folder, f"Diving48*{'train' if train else 'test'}.json"))
    vocabulary = folder / "Diving48_vocab.json"
    if vocabulary.exists():
        classes = ["+".join(dive) for dive in _json(vocabulary)]
    else:
        classes = [str(i) for i in range(max(item["label"] for item in items) + 1)]
    return Listing([((item["vid_name"],), item["label"]) for item in items], classes)


def existing(path: Path) -> Path:
    """The path; an error where nothing is."""
    if not path.exists():
        raise StillmotionError(f"{path}: no such file or folder")
    return path


def read_lines(file: Path) -> list[str]:
    """The lines of a text file that hold something."""
    text = existing(file).read_text(encoding="utf-8", errors="surrogateescape")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _last(folder: Path, pattern: str) -> Path:
    """The newest version of a list by its name: V2 comes after V1, and v1.1 after v1.0."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise StillmotionError(f"{folder}: no {pattern}; name the folder of the lists by annotations")
    return files[-1]


def _stem(name: str) -> str:
    return str(Path(name).with_suffix(""))


def _json(file: Path) -> Any:
    try:
        return json.loads(existing(file).read_text(encoding="utf-8", errors="surrogateescape"))
    except ValueError as error:
        raise StillmotionError(f"{file}: not JSON ({error})") from None
