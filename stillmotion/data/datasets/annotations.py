"""K200-40k: 200 classes of Kinetics-400 with 200 training videos each (ViDiDi, §3.1), chosen by rule.

The paper does not publish its list. The rule here goes by names alone, so that every copy of Kinetics, re-encoded or
not, gives the same list as long as the same videos are there:

1. Classes of which fewer than 200 videos are there are left out.
2. Of the others, the 200 whose names have the smallest SHA-256.
3. Of each class, the 200 videos whose file names without suffix have the smallest SHA-256.
4. The list is sorted by class and then by file name; labels count the chosen classes.

`--layout k200` takes this part of a Kinetics folder."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from stillmotion.data.datasets.base import DEFAULT_TARGET, UNKNOWN_LABEL, FailedVideos, PathDataset
from stillmotion.data.datasets.csv_list import read_csv_rows
from stillmotion.data.datasets.folder import find_videos
from stillmotion.errors import StillmotionError, VideoError, raise_if_none_readable

SequenceT = TypeVar("SequenceT")


def open_sequences(
    names: Iterable[str], open_one: Callable[[str], list[SequenceT]]
) -> tuple[list[SequenceT], FailedVideos]:
    found: list[SequenceT] = []
    broken: FailedVideos = []
    for name in names:
        try:
            found += open_one(name)
        except VideoError as error:
            broken.append((name, str(error)))
    if not found:
        raise_if_none_readable(broken, len(broken), "sequences")
    return found, broken


def select_sequences(names: list[str], only: Iterable[str]) -> list[str]:
    for name in only:
        if name not in names:
            raise StillmotionError(f"there is no sequence {name!r} in the list; the first is {names[0]!r}")
    return list(only) or names


def check_folder(path: Path, remedy: str = "") -> Path:
    if not path.is_dir():
        raise StillmotionError(f"{path}: no such folder" + (f"; {remedy}" if remedy else ""))
    return path


def read_list_lines(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    return [line.strip() for line in text.splitlines() if line.strip()]


def select_k200(dataset: PathDataset, *, num_classes: int = 200, videos_per_class: int = 200) -> PathDataset:
    """The part of Kinetics that the rule above chooses.

    dataset: its training split, labelled. classes, each: how many classes, and videos of each.
    """
    found: defaultdict[str, list[Path]] = defaultdict(list)
    names = dataset.classes.get(DEFAULT_TARGET, [])
    for path, label in zip(dataset.paths, dataset.labels.get(DEFAULT_TARGET, ()), strict=False):
        if label >= 0:
            found[names[label]].append(path)
    large = [name for name, paths in found.items() if len(paths) >= videos_per_class]
    if len(large) < num_classes:
        raise StillmotionError(
            f"{dataset.root}: {len(large)} classes have {videos_per_class} videos; K200-40k needs {num_classes} (give all of "
            "Kinetics-400's training videos, in class folders or with their CSV by --annotations)"
        )
    chosen = sorted(sorted(large, key=_name_hash)[:num_classes])
    paths = [
        sorted(sorted(found[name], key=lambda p: _name_hash(p.stem))[:videos_per_class], key=lambda p: p.stem)
        for name in chosen
    ]
    return PathDataset(
        [path for some in paths for path in some],
        labels=[label for label, some in enumerate(paths) for _ in some],
        classes=chosen,
        root=dataset.root,
    )


def _name_hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()


class AnnotationList(NamedTuple):
    """What a published list says: of each video the names it may have, without suffix, and its label; all classes.

    A name is a path below the set's folder, or the end of one.
    """

    entries: Sequence[tuple[tuple[str, ...], int]]
    classes: list[str]


def index_videos_by_name(root: str | Path) -> dict[str, Path]:
    """The videos below a folder by their path without suffix, and by every end of it; the first of equal ends."""
    root = Path(root)
    found: dict[str, Path] = {}
    for path in find_videos(check_exists(root)):
        parts = (path.with_suffix("") if path.is_file() else path).relative_to(root).parts
        found["/".join(parts)] = path
        for start in range(1, len(parts)):
            found.setdefault("/".join(parts[start:]), path)
    return found


def find_listed_videos(videos_by_name: Mapping[str, Path], annotations: AnnotationList) -> list[Path | None]:
    """Where each listed video is, by `names_below` a folder; None where it is not."""
    return [
        next((videos_by_name[name] for name in names if name in videos_by_name), None)
        for names, _ in annotations.entries
    ]


class AnnotatedDataset(PathDataset):
    """The videos of a list that are there, anywhere below a folder."""

    def __init__(self, root: str | Path, annotations: AnnotationList) -> None:
        paths, labels, missing = [], [], []
        for (names, label), path in zip(
            annotations.entries, find_listed_videos(index_videos_by_name(root), annotations), strict=True
        ):
            if path is None:
                missing.append(names[0])
            else:
                paths.append(path)
                labels.append(label)
        if not paths:
            first = f"; the first is {missing[0]}" if missing else ""
            raise StillmotionError(f"{root}: none of the {len(missing)} videos of the split is there{first}")
        super().__init__(paths, labels=labels, classes=annotations.classes, root=Path(root), missing_videos=missing)


def read_ucf101(folder: Path, *, train: bool, fold: int) -> AnnotationList:
    """classInd.txt, and trainlist01.txt or testlist01.txt of the first of three folds."""
    numbered = [line.split() for line in read_text_lines(folder / "classInd.txt")]
    classes = [name for _, name in sorted(numbered, key=lambda pair: int(pair[0]))]
    number = {name: i for i, name in enumerate(classes)}
    lines = read_text_lines(folder / f"{'train' if train else 'test'}list{fold:02d}.txt")
    names = [_without_suffix(line.split()[0]) for line in lines]
    return AnnotationList([((name, name.split("/")[-1]), number[name.split("/")[0]]) for name in names], classes)


def read_hmdb51(folder: Path, *, train: bool | None, fold: int) -> AnnotationList:
    """<class>_test_split1.txt of the first of three folds: 1 is training, 2 is test, 0 is unused; None takes all."""
    marks = {True: "1", False: "2", None: "012"}[train]
    ending = f"_test_split{fold}.txt"
    files = sorted(check_exists(folder).glob(f"*{ending}"))
    if not files:
        raise StillmotionError(f"{folder}: no *{ending}; splits are 1 to 3")
    classes = [file.name.removesuffix(ending) for file in files]
    entries = [
        ((f"{classes[label]}/{_without_suffix(line.split()[0])}", _without_suffix(line.split()[0])), label)
        for label, file in enumerate(files)
        for line in read_text_lines(file)
        if line.split()[1] in marks
    ]
    return AnnotationList(entries, classes)


def read_kinetics(file: Path, *, split: str | None = None) -> AnnotationList:
    """The rows of a CSV (label, youtube_id, time_start, time_end, split), or those of one split where it tells them.

    Files are <id>_<start>_<end>.mp4 with six digits each, or <id>.mp4.
    """
    rows = read_csv_rows(file)
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
        entries.append(((timed, name), number.get(row.get("label", ""), UNKNOWN_LABEL)))
    return AnnotationList(entries, classes)


def read_ssv2(labels: Path, annotations: Path) -> AnnotationList:
    """The ids of a split with their templates, which `labels` numbers; test videos have no label."""
    numbers = {name: int(label) for name, label in _read_json(labels).items()}
    classes = sorted(numbers, key=lambda name: numbers[name])
    entries = []
    for item in _read_json(annotations):
        template = item.get("template", "").replace("[", "").replace("]", "")
        if template and template not in numbers:
            raise StillmotionError(f"{annotations}: template {template!r} of video {item['id']} is not in {labels}")
        entries.append(((str(item["id"]),), numbers.get(template, UNKNOWN_LABEL)))
    return AnnotationList(entries, classes)


def read_gym99(folder: Path, *, train: bool, fold: int = 1) -> AnnotationList:
    """Lines "<id> <label>", the same for any fold; classes have names where gym99_categories.txt is there."""
    file = _latest_version(folder, f"gym99_{'train' if train else 'val'}*.txt")
    pairs = [line.split() for line in read_text_lines(file)]
    names = folder / "gym99_categories.txt"
    if names.exists():
        classes = [line.split(";")[-1].strip() for line in read_text_lines(names)]
    else:
        classes = [str(i) for i in range(max(int(label) for _, label in pairs) + 1)]
    return AnnotationList([((name,), int(label)) for name, label in pairs], classes)


def read_diving48(folder: Path, *, train: bool, fold: int = 1) -> AnnotationList:
    """Items with vid_name and label, the same for any fold; a class is the four parts of a dive in the vocabulary."""
    items = _read_json(_latest_version(folder, f"Diving48*{'train' if train else 'test'}.json"))
    vocabulary = folder / "Diving48_vocab.json"
    if vocabulary.exists():
        classes = ["+".join(dive) for dive in _read_json(vocabulary)]
    else:
        classes = [str(i) for i in range(max(item["label"] for item in items) + 1)]
    return AnnotationList([((item["vid_name"],), item["label"]) for item in items], classes)


def check_exists(path: Path) -> Path:
    """The path; an error where nothing is."""
    if not path.exists():
        raise StillmotionError(f"{path}: no such file or folder")
    return path


def read_text_lines(file: Path) -> list[str]:
    """The lines of a text file that hold something."""
    text = check_exists(file).read_text(encoding="utf-8", errors="surrogateescape")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _latest_version(folder: Path, pattern: str) -> Path:
    """The newest version of a list by its name: V2 comes after V1, and v1.1 after v1.0."""
    files = sorted(folder.glob(pattern))
    if not files:
        raise StillmotionError(f"{folder}: no {pattern}; name the folder of the lists by annotations")
    return files[-1]


def _without_suffix(name: str) -> str:
    return str(Path(name).with_suffix(""))


def _read_json(file: Path) -> Any:
    try:
        return json.loads(check_exists(file).read_text(encoding="utf-8", errors="surrogateescape"))
    except ValueError as error:
        raise StillmotionError(f"{file}: not JSON ({error})") from None
