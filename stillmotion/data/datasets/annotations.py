"""Parsers of published annotation lists (UCF101, HMDB51, Kinetics, SSv2, Gym99, Diving48), and their shared helpers."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from stillmotion.data.datasets.base import UNKNOWN_LABEL, FailedVideos, PathDataset
from stillmotion.data.datasets.csv_list import read_numbered_csv_rows
from stillmotion.data.datasets.folder import find_videos
from stillmotion.data.datasets.list_files import (
    ListLine,
    check_exists,
    read_json_items,
    read_json_list,
    read_list_lines,
    read_text_lines,
)
from stillmotion.errors import StillmotionError, VideoError, as_video_error, raise_if_none_readable

SequenceT = TypeVar("SequenceT")
# What the lines and items of the lists hold, for errors.
_UCF101_CLASS = "<number> <class>"
_HMDB51_LINE = "<video> <0, 1 or 2>"
_KINETICS_COLUMNS = "label,youtube_id,time_start,time_end with times in seconds"
_SSV2_ITEM = "an object with id and template"
_GYM99_LINE = "<video> <class id>"
_DIVING48_ITEM = "an object with vid_name and label, a class id"


def matching_files(folder: Path, *patterns: str, subfolders: bool = False, required: bool = True) -> list[Path]:
    """Files of the first pattern that any file matches.

    Versions of a list sort by name, so that the last one is the newest: V2 comes after V1, and v1.1 after v1.0.

    Args:
        folder: Folder to search.
        patterns: Globs of file names, the preferred one first.
        subfolders: Search the folders in it, too.
        required: Raise an error if no file matches.

    Returns:
        The files, sorted by name.
    """
    for pattern in patterns:
        files = [*folder.glob(pattern), *(folder.glob(f"*/{pattern}") if subfolders else ())]
        if files:
            return sorted(files, key=lambda file: file.name)
    if required:
        raise StillmotionError(
            f"{folder}: no file matches {patterns[0]}. Give the annotation folder with --annotations."
        )
    return []


def open_readable_sequences(
    names: Iterable[str], open_one: Callable[[str], list[SequenceT]]
) -> tuple[list[SequenceT], FailedVideos]:
    """Open sequences by name, and collect those that cannot be read.

    Args:
        names: Names of the sequences.
        open_one: Function that opens the sequences of a name, or raises VideoError.

    Returns:
        The sequences, and name and reason of each that could not be opened.

    Raises:
        StillmotionError: None could be opened.
    """
    sequences: list[SequenceT] = []
    failed: FailedVideos = []
    for name in names:
        try:
            with as_video_error(name):
                sequences += open_one(name)
        except VideoError as error:
            failed.append((name, str(error)))
    if not sequences:
        raise_if_none_readable(failed, len(failed), "sequences")
    return sequences, failed


def select_sequences(names: list[str], only: Iterable[str]) -> list[str]:
    """Select sequences by name.

    Args:
        names: Names of all sequences.
        only: Names to select; empty selects all.

    Raises:
        StillmotionError: A name is unknown.
    """
    for name in only:
        if name not in names:
            first = f"the first is {names[0]!r}" if names else "the list is empty"
            raise StillmotionError(f"There is no sequence {name!r} in the list; {first}.")
    return list(only) or names


class AnnotationList(NamedTuple):
    """Entries (possible names, label) and class names of a published annotation list.

    A name is a path below the folder of the data set, or the end of one, without suffix. The label is -1 if unknown.
    """

    entries: Sequence[tuple[tuple[str, ...], int]]
    classes: list[str]


def index_videos_by_name(root: str | Path) -> dict[str, Path]:
    """Find the videos below a folder by name.

    Args:
        root: The folder.

    Returns:
        Paths by the relative path without suffix, and by every end of it; the first of equal ends.
    """
    root = Path(root)
    videos_by_name: dict[str, Path] = {}
    for path in find_videos(check_exists(root)):
        parts = (path.with_suffix("") if path.is_file() else path).relative_to(root).parts
        videos_by_name["/".join(parts)] = path
        for start in range(1, len(parts)):
            videos_by_name.setdefault("/".join(parts[start:]), path)
    return videos_by_name


def find_listed_videos(videos_by_name: Mapping[str, Path], annotations: AnnotationList) -> list[Path | None]:
    """Find the video of each entry.

    Args:
        videos_by_name: Paths as `index_videos_by_name` returns them.
        annotations: The list.

    Returns:
        A path for each entry; None if the video does not exist.
    """
    return [
        next((videos_by_name[name] for name in names if name in videos_by_name), None)
        for names, _ in annotations.entries
    ]


class AnnotatedDataset(PathDataset):
    """The existing videos of an annotation list, anywhere below a folder.

    Args:
        root: The folder.
        annotations: The list.

    Raises:
        StillmotionError: None of the videos exists.
    """

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
            first = f"; the first missing one is {missing[0]}" if missing else ""
            raise StillmotionError(f"{root}: none of the {len(missing)} listed videos was found{first}.")
        super().__init__(paths, labels=labels, classes=annotations.classes, root=Path(root), missing_videos=missing)


def read_ucf101(folder: Path, *, train: bool, fold: int) -> AnnotationList:
    """Read a list of UCF101: classInd.txt, and trainlist01.txt or testlist01.txt.

    Args:
        folder: Folder of the lists.
        train: Read the training list, not the test list.
        fold: Fold, 1 to 3.
    """
    name_by_number: dict[int, str] = {}
    for line in read_list_lines(folder / "classInd.txt"):
        number, name = line.fields(2, _UCF101_CLASS)
        number_id = line.class_id(number, _UCF101_CLASS)
        if number_id in name_by_number or name in name_by_number.values():
            raise line.error("each number and name once")
        name_by_number[number_id] = name
    classes = [name for _, name in sorted(name_by_number.items())]
    label_by_class = {name: i for i, name in enumerate(classes)}
    entries = []
    for line in read_list_lines(folder / f"{'train' if train else 'test'}list{fold:02d}.txt"):
        name = _without_suffix(line, line.content.split()[0])
        class_name, _, video = name.partition("/")
        if class_name not in label_by_class or not video:
            raise line.error("<class>/<video> with a class of classInd.txt")
        entries.append(((name, name.split("/")[-1]), label_by_class[class_name]))
    return AnnotationList(entries, classes)


def read_hmdb51(folder: Path, *, train: bool | None, fold: int) -> AnnotationList:
    """Read the lists of HMDB51, <class>_test_split1.txt: 1 is training, 2 is test, 0 is unused.

    Args:
        folder: Folder of the lists.
        train: Read the training videos, not the test videos; None reads all.
        fold: Fold, 1 to 3.
    """
    marks = {True: "1", False: "2", None: "012"}[train]
    ending = f"_test_split{fold}.txt"
    files = sorted(check_exists(folder).glob(f"*{ending}"))
    if not files:
        raise StillmotionError(f"{folder}: no *{ending}; splits are 1 to 3.")
    classes = [file.name.removesuffix(ending) for file in files]
    entries = []
    for label, file in enumerate(files):
        for line in read_list_lines(file):
            video, mark = line.fields(2, _HMDB51_LINE)
            if mark not in ("0", "1", "2"):
                raise line.error(_HMDB51_LINE)
            if mark in marks:
                name = _without_suffix(line, video)
                entries.append(((f"{classes[label]}/{name}", name), label))
    return AnnotationList(entries, classes)


def read_kinetics(file: Path, *, split: str | None = None) -> AnnotationList:
    """Read a list of Kinetics, a CSV (label, youtube_id, time_start, time_end, split).

    Files are <id>_<start>_<end>.mp4 with six digits each, or <id>.mp4.

    Args:
        file: The list.
        split: Read only the rows of this split, if the list has a column split.
    """
    numbered = read_numbered_csv_rows(file)
    columns = numbered[0][1]
    if not {"youtube_id", "time_start", "time_end"} <= columns.keys():
        raise ListLine(f"{file}, line 1", ",".join(columns)).error(f"the columns {_KINETICS_COLUMNS}")
    classes = sorted({row["label"] for _, row in numbered if row.get("label")})
    label_by_class = {name: i for i, name in enumerate(classes)}
    if split is not None and "split" in columns:
        numbered = [(number, row) for number, row in numbered if row["split"][:3] == split[:3]]
        if not numbered:
            raise StillmotionError(f"{file}: no row of split {split!r}.")
    entries = []
    for number, row in numbered:
        name, *times = row["youtube_id"], row["time_start"], row["time_end"]
        if not name or not all(re.fullmatch("-?[0-9]{1,9}", time) for time in times):
            cells = (value for column, value in row.items() if column != "path")  # a copy of the name
            raise ListLine(f"{file}, line {number}", ",".join(cells)).error(_KINETICS_COLUMNS)
        start, end = map(int, times)
        label = label_by_class.get(row.get("label", ""), UNKNOWN_LABEL)
        entries.append(((f"{name}_{start:06d}_{end:06d}", name), label))
    return AnnotationList(entries, classes)


def read_ssv2(labels: Path, annotations: Path) -> AnnotationList:
    """Read a list of Something-Something v2. Test videos have no label.

    Args:
        labels: JSON file from template to class id.
        annotations: JSON file of the ids of a split, with their templates.
    """
    content = ListLine(str(labels), read_json_list(labels))
    if not isinstance(content.content, dict):
        raise content.error("an object from templates to class ids")
    num_classes = len(content.content)
    label_by_class = {
        name: ListLine(f"{labels}, template {name!r}", label).class_id(label, "a class id", num_classes=num_classes)
        for name, label in content.content.items()
    }
    if len(set(label_by_class.values())) < num_classes:
        raise StillmotionError(f"{labels}: two templates have the same class id; expected 0 to {num_classes - 1}.")
    classes = sorted(label_by_class, key=lambda name: label_by_class[name])
    entries = []
    for item in read_json_items(annotations, _SSV2_ITEM):
        video, template = item.content.get("id"), item.content.get("template", "")
        if type(video) not in (int, str) or not isinstance(template, str):
            raise item.error(_SSV2_ITEM)
        template = template.replace("[", "").replace("]", "")
        if template and template not in label_by_class:
            raise item.error(f"a template of {labels}")
        entries.append(((str(video),), label_by_class.get(template, UNKNOWN_LABEL)))
    return AnnotationList(entries, classes)


def read_gym99(folder: Path, *, train: bool, fold: int = 1) -> AnnotationList:
    """Read a list of Gym99, lines "<id> <label>"; class names are in gym99_categories.txt, if it exists.

    Args:
        folder: Folder of the lists.
        train: Read the training list, not the validation list.
        fold: Ignored; there is one split.
    """
    file = matching_files(folder, f"gym99_{'train' if train else 'val'}*.txt")[-1]
    names = folder / "gym99_categories.txt"
    classes = [line.split(";")[-1].strip() for line in read_text_lines(names)] if names.exists() else None
    entries = []
    for line in read_list_lines(file):
        video, label = line.fields(2, _GYM99_LINE)
        entries.append(((video,), line.class_id(label, _GYM99_LINE, **_limit(classes))))
    return _with_classes(entries, classes)


def read_diving48(folder: Path, *, train: bool, fold: int = 1) -> AnnotationList:
    """Read a list of Diving48; a class name joins the four parts of a dive in the vocabulary, if it exists.

    Args:
        folder: Folder of the lists.
        train: Read the training list, not the test list.
        fold: Ignored; there is one split.
    """
    file = matching_files(folder, f"Diving48*{'train' if train else 'test'}.json")[-1]
    vocabulary, classes = folder / "Diving48_vocab.json", None
    if vocabulary.exists():
        dives = ListLine(str(vocabulary), read_json_list(vocabulary))
        if not isinstance(dives.content, list) or not all(_is_text_list(dive) for dive in dives.content):
            raise dives.error("a list of dives, each a list of parts")
        classes = ["+".join(dive) for dive in dives.content]
    entries = []
    for item in read_json_items(file, _DIVING48_ITEM):
        video, label = item.content.get("vid_name"), item.content.get("label")
        if not isinstance(video, str):
            raise item.error(_DIVING48_ITEM)
        entries.append(((video,), item.class_id(label, _DIVING48_ITEM, **_limit(classes))))
    return _with_classes(entries, classes)


def select_k200(dataset: PathDataset, *, num_classes: int = 200, videos_per_class: int = 200) -> PathDataset:
    """Select K200-40k: 200 classes of Kinetics-400 with 200 training videos each (ViDiDi, §3.1), by a rule.

    The paper does not publish its list. This rule uses names only, so that every copy of Kinetics, re-encoded or not,
    gives the same list as long as it has the same videos:

    1. Drop classes with fewer than 200 videos.
    2. Of the others, take the 200 whose names have the smallest SHA-256.
    3. Of each class, take the 200 videos whose file names without suffix have the smallest SHA-256.
    4. Sort by class and then by file name; labels count the selected classes.

    Args:
        dataset: The labeled training split of Kinetics-400.
        num_classes: Number of classes.
        videos_per_class: Number of videos of each class.

    Raises:
        StillmotionError: There are too few videos.
    """
    paths_by_class: defaultdict[str, list[Path]] = defaultdict(list)
    for path, class_name in zip(dataset.paths, dataset.class_names(), strict=True):
        if class_name is not None:
            paths_by_class[class_name].append(path)
    large = [name for name, paths in paths_by_class.items() if len(paths) >= videos_per_class]
    if len(large) < num_classes:
        raise StillmotionError(
            f"{dataset.root}: only {len(large)} classes have at least {videos_per_class} videos; K200-40k needs "
            f"{num_classes}. Give the whole Kinetics-400 training set."
        )
    classes = sorted(sorted(large, key=_name_hash)[:num_classes])
    paths = [
        sorted(sorted(paths_by_class[name], key=lambda p: _name_hash(p.stem))[:videos_per_class], key=lambda p: p.stem)
        for name in classes
    ]
    return PathDataset(
        [path for of_class in paths for path in of_class],
        labels=[label for label, of_class in enumerate(paths) for _ in of_class],
        classes=classes,
        root=dataset.root,
    )


def _name_hash(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()


def _without_suffix(line: ListLine, name: str) -> str:
    try:
        return str(Path(name).with_suffix(""))
    except ValueError:  # . or /
        raise line.error("the name of a video") from None


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _limit(classes: Sequence[str] | None) -> dict[str, int]:
    """The argument of `ListLine.class_id` by which ids are those of known classes."""
    return {} if classes is None else {"num_classes": len(classes)}


def _with_classes(entries: Sequence[tuple[tuple[str, ...], int]], classes: list[str] | None) -> AnnotationList:
    """The list with its classes, or with numbers as their names."""
    if classes is None:
        classes = [str(i) for i in range(max((label for _, label in entries), default=-1) + 1)]
    return AnnotationList(entries, classes)
