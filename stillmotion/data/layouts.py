"""UCF101, HMDB51, Kinetics, SSv2, Gym99 and Diving48 as they are published: their own folders, names and lists.

Videos are found by name without suffix, so that re-encoded copies serve too. What a split lists but the disk lacks
(dead links, part of the classes) is left out and named in `missing`.
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


class _Listed(PathSet):
    """The videos of a list that are there."""

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


class UCF101(_Listed):
    """UCF101 with its official lists (classInd.txt, trainlist01.txt, testlist01.txt, …) in `split_dir`."""

    def __init__(self, root: str | Path, split_dir: str | Path, *, split: int = 1, train: bool = True) -> None:
        super().__init__(root, ucf101_list(split_dir, split=split, train=train))


class HMDB51(_Listed):
    """HMDB51 with its official lists (<class>_test_split1.txt: 1 is training, 2 is test, 0 is unused)."""

    def __init__(self, root: str | Path, split_dir: str | Path, *, split: int = 1, train: bool = True) -> None:
        super().__init__(root, hmdb51_list(split_dir, split=split, marks="1" if train else "2"))


class Kinetics(_Listed):
    """Kinetics by its CSV (label, youtube_id, time_start, time_end, split).

    Files are <id>_<start>_<end>.mp4 with six digits each, or <id>.mp4; in class folders or not.
    split: keep the rows of this split (train, val or validate, test); None keeps all.
    """

    def __init__(self, root: str | Path, annotations: str | Path, *, split: str | None = None) -> None:
        super().__init__(root, kinetics_list(annotations, split=split))


class SSv2(_Listed):
    """Something-Something v2 by its JSON files: labels, and train, validation or test with ids and templates."""

    def __init__(self, root: str | Path, labels: str | Path, annotations: str | Path) -> None:
        super().__init__(root, ssv2_list(labels, annotations))


class Gym99(_Listed):
    """FineGym's Gym99: clips named by their element's id, and gym99_train_element_v1.1.txt, gym99_val_element.txt."""

    def __init__(self, root: str | Path, split_dir: str | Path, *, train: bool = True) -> None:
        super().__init__(root, gym99_list(split_dir, train=train))


class Diving48(_Listed):
    """Diving48 with Diving48_V2_train.json, Diving48_V2_test.json and Diving48_vocab.json in `split_dir`."""

    def __init__(self, root: str | Path, split_dir: str | Path, *, train: bool = True) -> None:
        super().__init__(root, diving48_list(split_dir, train=train))


def ucf101_list(folder: str | Path, *, split: int, train: bool) -> Listing:
    """One half of one of the three splits."""
    folder = Path(folder)
    numbered = [line.split() for line in read_lines(folder / "classInd.txt")]
    classes = [name for _, name in sorted(numbered, key=lambda pair: int(pair[0]))]
    number = {name: i for i, name in enumerate(classes)}
    lines = read_lines(folder / f"{'train' if train else 'test'}list{split:02d}.txt")
    names = [_stem(line.split()[0]) for line in lines]
    return Listing([((name, name.split("/")[-1]), number[name.split("/")[0]]) for name in names], classes)


def hmdb51_list(folder: str | Path, *, split: int, marks: str) -> Listing:
    """The videos of one of the three splits whose mark is among these."""
    ending = f"_test_split{split}.txt"
    files = sorted(existing(Path(folder)).glob(f"*{ending}"))
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


def kinetics_list(file: str | Path, *, split: str | None = None) -> Listing:
    """The rows of a CSV, or those of one split."""
    rows = read_rows(Path(file))
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


def ssv2_list(labels: str | Path, annotations: str | Path) -> Listing:
    """The ids of a split, by templates; test videos have no label."""
    numbers = {name: int(label) for name, label in _json(Path(labels)).items()}
    classes = sorted(numbers, key=lambda name: numbers[name])
    entries = []
    for item in _json(Path(annotations)):
        template = item.get("template", "").replace("[", "").replace("]", "")
        if template and template not in numbers:
            raise StillmotionError(f"{annotations}: template {template!r} of video {item['id']} is not in {labels}")
        entries.append(((str(item["id"]),), numbers.get(template, UNKNOWN)))
    return Listing(entries, classes)


def gym99_list(folder: str | Path, *, train: bool) -> Listing:
    """Lines "<id> <label>"; classes have names where gym99_categories.txt is there."""
    file = _last(Path(folder), f"gym99_{'train' if train else 'val'}*.txt")
    pairs = [line.split() for line in read_lines(file)]
    names = Path(folder) / "gym99_categories.txt"
    if names.exists():
        classes = [line.split(";")[-1].strip() for line in read_lines(names)]
    else:
        classes = [str(i) for i in range(max(int(label) for _, label in pairs) + 1)]
    return Listing([((name,), int(label)) for name, label in pairs], classes)


def diving48_list(folder: str | Path, *, train: bool) -> Listing:
    """Items with vid_name and label; a class is the four parts of a dive in the vocabulary."""
    items = _json(_last(Path(folder), f"Diving48*{'train' if train else 'test'}.json"))
    vocabulary = Path(folder) / "Diving48_vocab.json"
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
    return [line.strip() for line in existing(file).read_text().splitlines() if line.strip()]


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
        return json.loads(existing(file).read_text())
    except json.JSONDecodeError as error:
        raise StillmotionError(f"{file}: not JSON ({error})") from None
