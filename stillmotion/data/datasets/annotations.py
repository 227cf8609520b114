"""Parsers of published annotation lists (UCF101, HMDB51, Kinetics, SSv2, Gym99, Diving48), and their shared helpers."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from stillmotion.data.datasets.base import UNKNOWN_LABEL, FailedVideos, PathDataset
from stillmotion.data.datasets.csv_list import read_csv_rows
from stillmotion.data.datasets.folder import find_videos
from stillmotion.errors import StillmotionError, VideoError, as_video_error, raise_if_none_readable
from stillmotion.utils.files import read_json

SequenceT = TypeVar("SequenceT")


def check_exists(path: Path, hint: str = "", *, is_dir: bool = False) -> Path:
    """Check that a file or folder exists.

    Args:
        path: The file or folder.
        hint: What the user can do if it does not.
        is_dir: Require a folder.

    Returns:
        The path.
    """
    if not (path.is_dir() if is_dir else path.exists()):
        what = "folder" if is_dir else "file or folder"
        raise StillmotionError(f"{path}: no such {what}." + (f" {hint}" if hint else ""))
    return path


def read_text_lines(file: Path, hint: str = "") -> list[str]:
    """Read the lines of a text file that are not blank, without surrounding spaces.

    Args:
        file: Text file; bytes that are not UTF-8 are kept.
        hint: What the user can do if it does not exist.
    """
    try:
        text = check_exists(file, hint).read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise StillmotionError(f"{file}: cannot be read ({error.strerror}).") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


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
            raise StillmotionError(f"There is no sequence {name!r} in the list; the first is {names[0]!r}.")
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
    numbered = [line.split() for line in read_text_lines(folder / "classInd.txt")]
    classes = [name for _, name in sorted(numbered, key=lambda pair: int(pair[0]))]
    label_by_class = {name: i for i, name in enumerate(classes)}
    lines = read_text_lines(folder / f"{'train' if train else 'test'}list{fold:02d}.txt")
    names = [_without_suffix(line.split()[0]) for line in lines]
    entries = [((name, name.split("/")[-1]), label_by_class[name.split("/")[0]]) for name in names]
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
    entries = [
        ((f"{classes[label]}/{_without_suffix(line.split()[0])}", _without_suffix(line.split()[0])), label)
        for label, file in enumerate(files)
        for line in read_text_lines(file)
        if line.split()[1] in marks
    ]
    return AnnotationList(entries, classes)


def read_kinetics(file: Path, *, split: str | None = None) -> AnnotationList:
    """Read a list of Kinetics, a CSV (label, youtube_id, time_start, time_end, split).

    Files are <id>_<start>_<end>.mp4 with six digits each, or <id>.mp4.

    Args:
        file: The list.
        split: Read only the rows of this split, if the list has a column split.
    """
    rows = read_csv_rows(file)
    classes = sorted({row["label"] for row in rows if row.get("label")})
    label_by_class = {name: i for i, name in enumerate(classes)}
    if split is not None and "split" in rows[0]:
        rows = [row for row in rows if row["split"][:3] == split[:3]]
        if not rows:
            raise StillmotionError(f"{file}: no row of split {split!r}.")
    entries = []
    for row in rows:
        name = row["youtube_id"]
        with_times = f"{name}_{int(row['time_start']):06d}_{int(row['time_end']):06d}"
        entries.append(((with_times, name), label_by_class.get(row.get("label", ""), UNKNOWN_LABEL)))
    return AnnotationList(entries, classes)


def read_ssv2(labels: Path, annotations: Path) -> AnnotationList:
    """Read a list of Something-Something v2. Test videos have no label.

    Args:
        labels: JSON file from template to class id.
        annotations: JSON file of the ids of a split, with their templates.
    """
    label_by_class = {name: int(label) for name, label in read_json(check_exists(labels)).items()}
    classes = sorted(label_by_class, key=lambda name: label_by_class[name])
    entries = []
    for item in read_json(check_exists(annotations)):
        template = item.get("template", "").replace("[", "").replace("]", "")
        if template and template not in label_by_class:
            raise StillmotionError(f"{annotations}: template {template!r} of video {item['id']} is not in {labels}.")
        entries.append(((str(item["id"]),), label_by_class.get(template, UNKNOWN_LABEL)))
    return AnnotationList(entries, classes)


def read_gym99(folder: Path, *, train: bool, fold: int = 1) -> AnnotationList:
    """Read a list of Gym99, lines "<id> <label>"; class names are in gym99_categories.txt, if it exists.

    Args:
        folder: Folder of the lists.
        train: Read the training list, not the validation list.
        fold: Ignored; there is one split.
    """
    file = matching_files(folder, f"gym99_{'train' if train else 'val'}*.txt")[-1]
    pairs = [line.split() for line in read_text_lines(file)]
    names = folder / "gym99_categories.txt"
    if names.exists():
        classes = [line.split(";")[-1].strip() for line in read_text_lines(names)]
    else:
        classes = [str(i) for i in range(max(int(label) for _, label in pairs) + 1)]
    return AnnotationList([((name,), int(label)) for name, label in pairs], classes)


def read_diving48(folder: Path, *, train: bool, fold: int = 1) -> AnnotationList:
    """Read a list of Diving48; a class name joins the four parts of a dive in the vocabulary, if it exists.

    Args:
        folder: Folder of the lists.
        train: Read the training list, not the test list.
        fold: Ignored; there is one split.
    """
    items = read_json(matching_files(folder, f"Diving48*{'train' if train else 'test'}.json")[-1])
    vocabulary = folder / "Diving48_vocab.json"
    if vocabulary.exists():
        classes = ["+".join(dive) for dive in read_json(vocabulary)]
    else:
        classes = [str(i) for i in range(max(item["label"] for item in items) + 1)]
    return AnnotationList([((item["vid_name"],), item["label"]) for item in items], classes)


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


def _without_suffix(name: str) -> str:
    return str(Path(name).with_suffix(""))
