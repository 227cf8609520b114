"""UCF101, HMDB51, Kinetics and SSv2 as they are published: their own folders, file names and split files.

Videos are found by name without suffix, so that re-encoded copies serve too. What a split lists but the disk lacks
(dead links, part of the classes) is left out and named in `missing`.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stillmotion.data.paths import UNKNOWN, PathSet, find_videos, read_rows
from stillmotion.errors import StillmotionError


class _Listed(PathSet):
    """The videos of a split that are there.

    entries: the names a video may have, without suffix, and its label. A name is a path below root, or only its end.
    """

    def __init__(self, root: str | Path, entries: Iterable[tuple[Sequence[str], int]], classes: list[str]) -> None:
        root = Path(root)
        found: dict[str, Path] = {}
        for path in find_videos(_existing(root)):
            bare = path.with_suffix("") if path.is_file() else path
            found[str(bare.relative_to(root))] = path
            found.setdefault(bare.name, path)
        paths, labels, missing = [], [], []
        for names, label in entries:
            there = next((found[name] for name in names if name in found), None)
            if there is None:
                missing.append(names[0])
            else:
                paths.append(there)
                labels.append(label)
        if not paths:
            raise StillmotionError(
                f"{root}: none of the {len(missing)} videos of the split is there; the first is {missing[0]}"
            )
        super().__init__(paths, labels=labels, classes=classes, root=root, missing=missing)


class UCF101(_Listed):
    """UCF101 with its official lists (classInd.txt, trainlist01.txt, testlist01.txt, …) in `split_dir`."""

    def __init__(self, root: str | Path, split_dir: str | Path, *, split: int = 1, train: bool = True) -> None:
        folder = Path(split_dir)
        numbered = [line.split() for line in _lines(folder / "classInd.txt")]
        classes = [name for _, name in sorted(numbered, key=lambda pair: int(pair[0]))]
        number = {name: i for i, name in enumerate(classes)}
        lines = _lines(folder / f"{'train' if train else 'test'}list{split:02d}.txt")
        names = [_stem(line.split()[0]) for line in lines]
        entries = [((name, name.split("/")[-1]), number[name.split("/")[0]]) for name in names]
        super().__init__(root, entries, classes)


class HMDB51(_Listed):
    """HMDB51 with its official lists (<class>_test_split1.txt: 1 is training, 2 is test, 0 is unused)."""

    def __init__(self, root: str | Path, split_dir: str | Path, *, split: int = 1, train: bool = True) -> None:
        ending = f"_test_split{split}.txt"
        files = sorted(_existing(Path(split_dir)).glob(f"*{ending}"))
        if not files:
            raise StillmotionError(f"{split_dir}: no *{ending}; splits are 1 to 3")
        classes = [file.name.removesuffix(ending) for file in files]
        wanted = "1" if train else "2"
        entries = [
            ((f"{classes[label]}/{_stem(line.split()[0])}", _stem(line.split()[0])), label)
            for label, file in enumerate(files)
            for line in _lines(file)
            if line.split()[1] == wanted
        ]
        super().__init__(root, entries, classes)


class Kinetics(_Listed):
    """Kinetics by its CSV (label, youtube_id, time_start, time_end, split).

    Files are <id>_<start>_<end>.mp4 with six digits each, or <id>.mp4; in class folders or not.
    split: keep the rows of this split (train, val or validate, test); None keeps all.
    """

    def __init__(self, root: str | Path, annotations: str | Path, *, split: str | None = None) -> None:
        rows = read_rows(Path(annotations))
        classes = sorted({row["label"] for row in rows if row.get("label")})
        number = {name: i for i, name in enumerate(classes)}
        if split is not None and "split" in rows[0]:
            rows = [row for row in rows if row["split"][:3] == split[:3]]
            if not rows:
                raise StillmotionError(f"{annotations}: no row of split {split!r}")
        entries = []
        for row in rows:
            name = row["youtube_id"]
            timed = f"{name}_{int(row['time_start']):06d}_{int(row['time_end']):06d}"
            entries.append(((timed, name), number.get(row.get("label", ""), UNKNOWN)))
        super().__init__(root, entries, classes)


class SSv2(_Listed):
    """Something-Something v2 by its JSON files: labels, and train, validation or test with ids and templates."""

    def __init__(self, root: str | Path, labels: str | Path, annotations: str | Path) -> None:
        numbers = {name: int(label) for name, label in _json(Path(labels)).items()}
        classes = sorted(numbers, key=lambda name: numbers[name])
        entries = []
        for item in _json(Path(annotations)):
            template = item.get("template", "").replace("[", "").replace("]", "")
            if template and template not in numbers:
                raise StillmotionError(f"{annotations}: template {template!r} of video {item['id']} is not in {labels}")
            entries.append(((str(item["id"]),), numbers.get(template, UNKNOWN)))
        super().__init__(root, entries, classes)


def _stem(name: str) -> str:
    return str(Path(name).with_suffix(""))


def _existing(path: Path) -> Path:
    if not path.exists():
        raise StillmotionError(f"{path}: no such file or folder")
    return path


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in _existing(file).read_text().splitlines() if line.strip()]


def _json(file: Path) -> Any:
    try:
        return json.loads(_existing(file).read_text())
    except json.JSONDecodeError as error:
        raise StillmotionError(f"{file}: not JSON ({error})") from None
