"""Table of the public data sets: how each is recognized, opened and verified.

To add one, write a reader of its lists (`annotations.py`) and a row of `PUBLIC_DATASETS`. An installed package adds one
by an entry point of the group "stillmotion.datasets" that names a `PublicDataset`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stillmotion.data.datasets.annotations import (
    AnnotatedDataset,
    AnnotationList,
    matching_files,
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
from stillmotion.utils.registry import Registry

OpenFunction = Callable[[Path, Path, str | None, int], VideoDataset]


@dataclass(frozen=True)
class PublicDataset:
    """A public data set.

    Attributes:
        title: Its usual name.
        marker_file: Glob of a file that identifies the annotation folder; empty if there is none.
        list_suffix: Suffix that identifies a single list file, if no marker file does.
        list_column: CSV column that identifies a single list file, if no marker file does.
        official_counts: Number of videos in each official list, by its name.
        open: Function that opens the labeled videos, from the path of the data set, the folder or file of its lists, a
            split (None is every video) and a fold, counted from 1. None: its videos do not have one label each.
        select: Function that picks a subset of another data set (K200), instead of `open`.
        expected_files: Function that adds the videos of the lists (a folder or file) to `ExpectedFiles`. None: the
            data set cannot be verified.
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
    """A data set with train and test lists, in one fold or several.

    Args:
        title: Its usual name.
        read: Reader of a list, such as `read_ucf101`.
        lists: Official lists by file name.
        marker_file: Glob of a file that identifies the annotation folder.
    """
    return PublicDataset(
        title,
        marker_file=marker_file,
        official_counts={name: split.num_videos for name, split in lists.items() if split.num_videos is not None},
        open=partial(_open_train_test, read),
        expected_files=partial(expect_train_test, read, lists),
    )


def _open_train_test(
    read: Callable[..., AnnotationList], path: Path, annotations: Path, split: str | None, fold: int
) -> PathDataset:
    folder = annotations if annotations.is_dir() else annotations.parent
    lists = (True, False) if split is None else (split == "train",)
    return _concat_paths([AnnotatedDataset(path, read(folder, train=train, fold=fold)) for train in lists])


def _open_kinetics(path: Path, annotations: Path, split: str | None, fold: int) -> PathDataset:
    if annotations.is_dir():
        annotations = matching_files(annotations, *(f"*{name}*.csv" for name in split_aliases(split or "")))[0]
    return AnnotatedDataset(path.parent if path.is_file() else path, read_kinetics(annotations, split=split))


def _open_ssv2(path: Path, annotations: Path, split: str | None, fold: int) -> PathDataset:
    folder = annotations if annotations.is_dir() else annotations.parent
    labels = matching_files(folder, "*labels.json")[0]
    if annotations.is_dir():
        names = split_aliases(split or "train")
        patterns = [*(f"*-{name}.json" for name in names), *(f"{name}.json" for name in names)]
        annotations = matching_files(folder, *patterns)[0]
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
    """Names of the data sets that open as labeled videos; those of other packages all count, without an import."""
    return [
        name
        for name in PUBLIC_DATASETS
        if name not in PUBLIC_DATASETS.builtin or PUBLIC_DATASETS[name].open or PUBLIC_DATASETS[name].select
    ]


def verifiable_datasets() -> list[str]:
    """Names of the data sets that can be verified; those of other packages all count."""
    return [
        name for name in PUBLIC_DATASETS if name not in PUBLIC_DATASETS.builtin or PUBLIC_DATASETS[name].expected_files
    ]


def find_annotations(
    path: Path, datasets: Mapping[str, PublicDataset], *, search_parent: bool = True
) -> tuple[str, Path] | None:
    """Find the annotation folder of a data set: the folder itself, its parent or a folder in it.

    Args:
        path: Folder of the data set.
        datasets: Candidates by name.
        search_parent: Search the parent folder, too.

    Returns:
        Name of the first data set whose lists exist, and their folder; None if there is none.
    """
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
