"""The public data sets, a row each: how its lists are recognised, opened as labelled videos, and checked.

A set is added by a function that reads its lists (`layouts.py`) and a row below; a package that is installed beside
stillmotion adds one by an entry point of the group "stillmotion.datasets" that names a `PublicSet`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stillmotion.data.datasets.annotations import (
    AnnotatedDataset,
    AnnotationList,
    read_diving48,
    read_gym99,
    read_hmdb51,
    read_kinetics,
    read_ssv2,
    read_ucf101,
    select_k200,
)
from stillmotion.data.datasets.base import DEFAULT_TARGET, PathDataset, VideoDataset
from stillmotion.data.datasets.csv_list import split_aliases
from stillmotion.data.datasets.expected_files import (
    ExpectedFiles,
    SplitList,
    expect_ava,
    expect_breakfast,
    expect_jhmdb,
    expect_kinetics,
    expect_masks,
    expect_ssv2,
    expect_train_test,
)
from stillmotion.errors import StillmotionError
from stillmotion.utils.registry import Registry

OpenFunction = Callable[[Path, Path, str | None, int], VideoDataset]


@dataclass(frozen=True)
class PublicDataset:
    """A public data set.

    title: what people call it.
    marker_file: a glob of a file by which the folder of its lists is known; empty: none is looked for.
    list_suffix, list_column: by which a single list that is given is known, where no set's mark is: its suffix, or a column.
    official_counts: how many videos the official lists name, by the names of the lists.
    open: the set as labelled videos, from its path, the folder or file of its lists, a split (None is every video) and
        a fold, which counts from 1. None: it is not made of videos with one label each.
    select: in place of `open`, the videos that make the set out of those of a larger one.
    expected_files: adds what its lists, in a folder or a file, name to `Contents`, for a check. None: it cannot be checked.
    """

    title: str
    marker_file: str = ""
    list_suffix: str = ""
    list_column: str = ""
    official_counts: Mapping[str, int] = field(default_factory=dict)
    open: OpenFunction | None = None
    select: Callable[[PathDataset], PathDataset] | None = None
    expected_files: Callable[[ExpectedFiles, Path], None] | None = None


def train_test_dataset(
    title: str, read: Callable[..., AnnotationList], lists: Mapping[str, SplitList], *, marker_file: str
) -> PublicDataset:
    """A labelled set with lists to train on and to test on, in one fold or several.

    read: as `layouts.py` says. lists: the official ones by name. mark: as in `PublicSet`.
    """
    return PublicDataset(
        title,
        marker_file=marker_file,
        official_counts={name: half.num_videos for name, half in lists.items() if half.num_videos is not None},
        open=partial(_open_train_test, read),
        expected_files=partial(expect_train_test, read, lists),
    )


def _open_train_test(
    read: Callable[..., AnnotationList], path: Path, annotations: Path, split: str | None, fold: int
) -> PathDataset:
    folder = annotations if annotations.is_dir() else annotations.parent
    halves = (True, False) if split is None else (split == "train",)
    return _concat_paths([AnnotatedDataset(path, read(folder, train=train, fold=fold)) for train in halves])


def _open_kinetics(path: Path, annotations: Path, split: str | None, fold: int) -> PathDataset:
    if annotations.is_dir():
        annotations = _first_match(annotations, [f"*{name}*.csv" for name in split_aliases(split or "")])
    return AnnotatedDataset(path.parent if path.is_file() else path, read_kinetics(annotations, split=split))


def _open_ssv2(path: Path, annotations: Path, split: str | None, fold: int) -> PathDataset:
    folder = annotations if annotations.is_dir() else annotations.parent
    labels = _first_match(folder, ["*labels.json"])
    if annotations.is_dir():
        names = split_aliases(split or "train")
        annotations = _first_match(folder, [f"*-{name}.json" for name in names] + [f"{name}.json" for name in names])
    return AnnotatedDataset(path, read_ssv2(labels, annotations))


PUBLIC_DATASETS = Registry(
    "data set",
    "datasets",
    {
        "ucf101": train_test_dataset(
            "UCF101",
            read_ucf101,
            {
                "trainlist01.txt": SplitList(True, 1, 9537),
                "testlist01.txt": SplitList(False, 1, 3783),
                "trainlist02.txt": SplitList(True, 2, 9586),
                "testlist02.txt": SplitList(False, 2, 3734),
                "trainlist03.txt": SplitList(True, 3, 9624),
                "testlist03.txt": SplitList(False, 3, 3696),
            },
            marker_file="classInd.txt",
        ),
        "hmdb51": train_test_dataset(
            "HMDB51",
            read_hmdb51,
            {f"*_test_split{fold}.txt": SplitList(None, fold, 6766) for fold in (1, 2, 3)},
            marker_file="*_test_split1.txt",
        ),
        "kinetics": PublicDataset(
            "Kinetics", list_column="youtube_id", open=_open_kinetics, expected_files=expect_kinetics
        ),
        "k200": PublicDataset("K200-40k: 200 × 200 videos of Kinetics", select=select_k200),
        "ssv2": PublicDataset(
            "Something-Something v2",
            marker_file="*something*labels.json",
            list_suffix=".json",
            official_counts={
                "something-something-v2-train.json": 168913,
                "something-something-v2-validation.json": 24777,
                "something-something-v2-test.json": 27157,
            },
            open=_open_ssv2,
            expected_files=expect_ssv2,
        ),
        "gym99": train_test_dataset(
            "Gym99",
            read_gym99,
            {
                "gym99_train_element_v1.1.txt": SplitList(True),
                "gym99_val_element.txt": SplitList(False, num_videos=8521),
            },
            marker_file="gym99_*.txt",
        ),
        "diving48": train_test_dataset(
            "Diving48",
            read_diving48,
            {
                "Diving48_V2_train.json": SplitList(True, num_videos=15027),
                "Diving48_V2_test.json": SplitList(False, num_videos=1970),
            },
            marker_file="Diving48*.json",
        ),
        "ava": PublicDataset(
            "AVA", official_counts={"ava_train_v2.2.csv": 235, "ava_val_v2.2.csv": 64}, expected_files=expect_ava
        ),
        "davis": PublicDataset(
            "DAVIS",
            official_counts={"ImageSets/2017/train.txt": 60, "ImageSets/2017/val.txt": 30},
            expected_files=partial(expect_masks, "davis"),
        ),
        "vip": PublicDataset(
            "VIP", official_counts={"lists/val_videos.txt": 50}, expected_files=partial(expect_masks, "vip")
        ),
        "jhmdb": PublicDataset("JHMDB", official_counts={"splits/*_test_split1.txt": 928}, expected_files=expect_jhmdb),
        "breakfast": PublicDataset(
            "Breakfast",
            official_counts={"train.split1.bundle": 1460, "test.split1.bundle": 252},
            expected_files=expect_breakfast,
        ),
    },
)


def openable_datasets() -> list[str]:
    """The sets that open as labelled videos; of other packages, all: to name them, nothing is imported."""
    return [
        name
        for name in PUBLIC_DATASETS
        if name not in PUBLIC_DATASETS.builtin or PUBLIC_DATASETS[name].open or PUBLIC_DATASETS[name].select
    ]


def verifiable_datasets() -> list[str]:
    """The sets that can be checked; of other packages, all."""
    return [
        name for name in PUBLIC_DATASETS if name not in PUBLIC_DATASETS.builtin or PUBLIC_DATASETS[name].expected_files
    ]


def find_annotations(
    path: Path, datasets: Mapping[str, PublicDataset], *, search_parent: bool = True
) -> tuple[str, Path] | None:
    """The first of these sets whose lists are in a folder, beside it or one level below, and where they are."""
    folders = [path, *([path.parent] if search_parent else [])]
    if path.is_dir():
        folders += sorted(child for child in path.iterdir() if child.is_dir())
    for folder in folders:
        for name, public in datasets.items():
            if public.marker_file and any(folder.glob(public.marker_file)):
                return name, folder
    return None


def _concat_paths(parts: Sequence[PathDataset]) -> PathDataset:
    if len(parts) == 1:
        return parts[0]
    paths = [path for part in parts for path in part.paths]
    labels = [int(label) for part in parts for label in part.labels[DEFAULT_TARGET]]
    missing = [name for part in parts for name in part.missing_videos]
    return PathDataset(
        paths, labels=labels, classes=parts[0].classes[DEFAULT_TARGET], root=parts[0].root, missing_videos=missing
    )


def _first_match(folder: Path, patterns: Sequence[str]) -> Path:
    for pattern in patterns:
        files = sorted(folder.glob(pattern))
        if files:
            return files[0]
    raise StillmotionError(f"{folder}: no file like {patterns[0]}; name it by annotations")
