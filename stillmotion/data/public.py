"""The public data sets, a row each: how its lists are recognised, opened as labelled videos, and checked.

A set is added by a function that reads its lists (`layouts.py`) and a row below; a package that is installed beside
stillmotion adds one by an entry point of the group "stillmotion.datasets" that names a `PublicSet`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stillmotion.data.contents import (
    Contents,
    Half,
    add_ava,
    add_breakfast,
    add_halves,
    add_jhmdb,
    add_kinetics,
    add_masks,
    add_ssv2,
)
from stillmotion.data.k200 import k200
from stillmotion.data.layouts import (
    Listed,
    Listing,
    diving48_list,
    gym99_list,
    hmdb51_list,
    kinetics_list,
    ssv2_list,
    ucf101_list,
)
from stillmotion.data.paths import TARGET, PathSet, VideoSet, split_names
from stillmotion.errors import StillmotionError
from stillmotion.registry import Registry

Open = Callable[[Path, Path, str | None, int], VideoSet]


@dataclass(frozen=True)
class PublicSet:
    """A public data set.

    title: what people call it.
    mark: a glob of a file by which the folder of its lists is known; empty: none is looked for.
    suffix, column: by which a single list that is given is known, where no set's mark is: its suffix, or a column.
    official: how many videos the official lists name, by the names of the lists.
    open: the set as labelled videos, from its path, the folder or file of its lists, a split (None is every video) and
        a fold, which counts from 1. None: it is not made of videos with one label each.
    choose: in place of `open`, the videos that make the set out of those of a larger one.
    contents: adds what its lists, in a folder or a file, name to `Contents`, for a check. None: it cannot be checked.
    """

    title: str
    mark: str = ""
    suffix: str = ""
    column: str = ""
    official: Mapping[str, int] = field(default_factory=dict)
    open: Open | None = None
    choose: Callable[[PathSet], PathSet] | None = None
    contents: Callable[[Contents, Path], None] | None = None


def in_halves(title: str, read: Callable[..., Listing], lists: Mapping[str, Half], *, mark: str) -> PublicSet:
    """A labelled set with lists to train on and to test on, in one fold or several.

    read: as `layouts.py` says. lists: the official ones by name. mark: as in `PublicSet`.
    """
    return PublicSet(
        title,
        mark=mark,
        official={name: half.videos for name, half in lists.items() if half.videos is not None},
        open=partial(_open_halves, read),
        contents=partial(add_halves, read, lists),
    )


def _open_halves(read: Callable[..., Listing], path: Path, notes: Path, split: str | None, fold: int) -> PathSet:
    folder = notes if notes.is_dir() else notes.parent
    halves = (True, False) if split is None else (split == "train",)
    return _joined([Listed(path, read(folder, train=train, fold=fold)) for train in halves])


def _open_kinetics(path: Path, notes: Path, split: str | None, fold: int) -> PathSet:
    if notes.is_dir():
        notes = _only(notes, [f"*{name}*.csv" for name in split_names(split or "")])
    return Listed(path.parent if path.is_file() else path, kinetics_list(notes, split=split))


def _open_ssv2(path: Path, notes: Path, split: str | None, fold: int) -> PathSet:
    folder = notes if notes.is_dir() else notes.parent
    labels = _only(folder, ["*labels.json"])
    if notes.is_dir():
        names = split_names(split or "train")
        notes = _only(folder, [f"*-{name}.json" for name in names] + [f"{name}.json" for name in names])
    return Listed(path, ssv2_list(labels, notes))


PUBLIC = Registry(
    "data set",
    "datasets",
    {
        "ucf101": in_halves(
            "UCF101",
            ucf101_list,
            {
                "trainlist01.txt": Half(True, 1, 9537),
                "testlist01.txt": Half(False, 1, 3783),
                "trainlist02.txt": Half(True, 2, 9586),
                "testlist02.txt": Half(False, 2, 3734),
                "trainlist03.txt": Half(True, 3, 9624),
                "testlist03.txt": Half(False, 3, 3696),
            },
            mark="classInd.txt",
        ),
        "hmdb51": in_halves(
            "HMDB51",
            hmdb51_list,
            {f"*_test_split{fold}.txt": Half(None, fold, 6766) for fold in (1, 2, 3)},
            mark="*_test_split1.txt",
        ),
        "kinetics": PublicSet("Kinetics", column="youtube_id", open=_open_kinetics, contents=add_kinetics),
        "k200": PublicSet("K200-40k: 200 × 200 videos of Kinetics", choose=k200),
        "ssv2": PublicSet(
            "Something-Something v2",
            mark="*something*labels.json",
            suffix=".json",
            official={
                "something-something-v2-train.json": 168913,
                "something-something-v2-validation.json": 24777,
                "something-something-v2-test.json": 27157,
            },
            open=_open_ssv2,
            contents=add_ssv2,
        ),
        "gym99": in_halves(
            "Gym99",
            gym99_list,
            {"gym99_train_element_v1.1.txt": Half(True), "gym99_val_element.txt": Half(False, videos=8521)},
            mark="gym99_*.txt",
        ),
        "diving48": in_halves(
            "Diving48",
            diving48_list,
            {
                "Diving48_V2_train.json": Half(True, videos=15027),
                "Diving48_V2_test.json": Half(False, videos=1970),
            },
            mark="Diving48*.json",
        ),
        "ava": PublicSet("AVA", official={"ava_train_v2.2.csv": 235, "ava_val_v2.2.csv": 64}, contents=add_ava),
        "davis": PublicSet(
            "DAVIS",
            official={"ImageSets/2017/train.txt": 60, "ImageSets/2017/val.txt": 30},
            contents=partial(add_masks, "davis"),
        ),
        "vip": PublicSet("VIP", official={"lists/val_videos.txt": 50}, contents=partial(add_masks, "vip")),
        "jhmdb": PublicSet("JHMDB", official={"splits/*_test_split1.txt": 928}, contents=add_jhmdb),
        "breakfast": PublicSet(
            "Breakfast",
            official={"train.split1.bundle": 1460, "test.split1.bundle": 252},
            contents=add_breakfast,
        ),
    },
)


def openable() -> list[str]:
    """The sets that open as labelled videos; of other packages, all: to name them, nothing is imported."""
    return [name for name in PUBLIC if name not in PUBLIC.own or PUBLIC[name].open or PUBLIC[name].choose]


def checkable() -> list[str]:
    """The sets that can be checked; of other packages, all."""
    return [name for name in PUBLIC if name not in PUBLIC.own or PUBLIC[name].contents]


def find_lists(path: Path, sets: Mapping[str, PublicSet], *, beside: bool = True) -> tuple[str, Path] | None:
    """The first of these sets whose lists are in a folder, beside it or one level below, and where they are."""
    folders = [path, *([path.parent] if beside else [])]
    if path.is_dir():
        folders += sorted(child for child in path.iterdir() if child.is_dir())
    for folder in folders:
        for name, public in sets.items():
            if public.mark and any(folder.glob(public.mark)):
                return name, folder
    return None


def _joined(parts: Sequence[PathSet]) -> PathSet:
    if len(parts) == 1:
        return parts[0]
    paths = [path for part in parts for path in part.paths]
    labels = [int(label) for part in parts for label in part.labels[TARGET]]
    missing = [name for part in parts for name in part.missing]
    return PathSet(paths, labels=labels, classes=parts[0].classes[TARGET], root=parts[0].root, missing=missing)


def _only(folder: Path, patterns: Sequence[str]) -> Path:
    for pattern in patterns:
        files = sorted(folder.glob(pattern))
        if files:
            return files[0]
    raise StillmotionError(f"{folder}: no file like {patterns[0]}; name it by annotations")
