"""What a published data set should hold, by its own lists, and where each of its videos is in a folder."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from stillmotion.data.breakfast import read_bundle
from stillmotion.data.dense import open_masks
from stillmotion.data.layouts import (
    Listing,
    diving48_list,
    existing,
    gym99_list,
    hmdb51_list,
    kinetics_list,
    locate,
    names_below,
    read_lines,
    ssv2_list,
    ucf101_list,
)
from stillmotion.data.paths import TARGET, UNKNOWN
from stillmotion.data.sets import FolderSet, ListSet, find_lists
from stillmotion.errors import StillmotionError

Name = Literal["ucf101", "hmdb51", "kinetics", "ssv2", "gym99", "diving48", "ava", "davis", "vip", "jhmdb", "breakfast"]
NAMES: tuple[Name, ...] = get_args(Name)

# How many videos the official lists name.
_OFFICIAL = {
    "trainlist01.txt": 9537,
    "testlist01.txt": 3783,
    "trainlist02.txt": 9586,
    "testlist02.txt": 3734,
    "trainlist03.txt": 9624,
    "testlist03.txt": 3696,
    **{f"*_test_split{i}.txt": 6766 for i in (1, 2, 3)},
    "something-something-v2-train.json": 168913,
    "something-something-v2-validation.json": 24777,
    "something-something-v2-test.json": 27157,
    "gym99_val_element.txt": 8521,
    "Diving48_V2_train.json": 15027,
    "Diving48_V2_test.json": 1970,
    "ava_train_v2.2.csv": 235,
    "ava_val_v2.2.csv": 64,
    "ImageSets/2017/train.txt": 60,
    "ImageSets/2017/val.txt": 30,
    "lists/val_videos.txt": 50,
    "splits/*_test_split1.txt": 928,
    "train.split1.bundle": 1460,
    "test.split1.bundle": 252,
}
_KINETICS_CLASSES = (400, 600, 700)


@dataclass(frozen=True)
class Item:
    """A video that a list names.

    group: its class, or empty. path: where it is; None: it is not there.
    beside: a file that belongs to it (mask, joints, frame labels). fault: what is known to be wrong with it.
    """

    name: str
    group: str
    path: Path | None
    beside: Path | None = None
    fault: str = ""


@dataclass
class Contents:
    """The listed videos by name, and remarks about the lists. root: where they are looked for."""

    root: Path
    items: dict[str, Item] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def names(self) -> dict[str, Path]:
        return names_below(self.root)

    def listed(self, name: str, listing: Listing) -> None:
        """The videos of a published list, by their names."""
        places = zip(listing.entries, locate(self.names, listing), strict=True)
        classes = listing.classes
        self.add(name, (Item(n[0], "" if y == UNKNOWN else classes[y], path) for (n, y), path in places))

    def add(self, name: str, items: Iterable[Item]) -> None:
        """The videos of one list; a video of several lists is taken once."""
        found = list(items)
        self.items |= {item.name: item for item in found}
        official = _OFFICIAL.get(name, len(found))
        if official != len(found):
            self.notes.append(f"{name} names {len(found):,} videos; the official list names {official:,}")

    def lack(self, name: str) -> None:
        """A list that is not there."""
        self.notes.append(f"{name} is not there; its videos were not looked for")


def contents(kind: Name, root: str | Path, annotations: str | Path | None = None) -> Contents:
    """What the lists of a set name, looked up below a folder.

    annotations: the folder (or file) of the lists, where they are not in the folder or beside it.
    """
    if kind not in _READERS:
        raise StillmotionError(f"there is no set {kind!r}; choose one of {', '.join(_READERS)}")
    folder = existing(Path(root))
    notes = existing(Path(annotations)) if annotations is not None else None
    if notes is None and kind in ("ucf101", "hmdb51", "ssv2", "gym99", "diving48"):
        place = find_lists(folder, [kind])
        if place is None:
            raise StillmotionError(
                f"{folder}: no lists of {kind} in it or beside it; give their folder by --annotations"
            )
        notes = place[1]
    found = Contents(folder)
    _READERS[kind](found, folder, notes or folder)
    if not found.items:
        raise StillmotionError(
            f"{notes or folder}: no list of {kind}'s videos there; give their folder by --annotations"
        )
    return found


def _ucf101(found: Contents, root: Path, notes: Path) -> None:
    for split in (1, 2, 3):
        for half in ("train", "test"):
            name = f"{half}list{split:02d}.txt"
            if (notes / name).exists():
                found.listed(name, ucf101_list(notes, split=split, train=half == "train"))
            else:
                found.lack(name)


def _hmdb51(found: Contents, root: Path, notes: Path) -> None:
    for split in (1, 2, 3):
        name = f"*_test_split{split}.txt"
        if any(notes.glob(name)):
            found.listed(name, hmdb51_list(notes, split=split, marks="012"))
        else:
            found.lack(name)


def _kinetics(found: Contents, root: Path, notes: Path) -> None:
    """By CSVs with youtube_id, by lists `path label`, or by class folders alone."""
    files = [notes] if notes.is_file() else sorted(notes.glob("*.csv"))
    for file in files:
        if "youtube_id" in read_lines(file)[0]:
            found.listed(file.name, kinetics_list(file))
        else:
            listed = ListSet(file, root)
            labels = listed.labels.get(TARGET, [UNKNOWN] * len(listed))
            found.add(
                file.name,
                (
                    Item(str(path), "" if label == UNKNOWN else listed.classes[TARGET][label], path if there else None)
                    for path, label, there in zip(listed.paths, labels, map(Path.exists, listed.paths), strict=True)
                ),
            )
    if files:
        return
    parts = [root / name for name in ("train", "val", "validate", "test") if (root / name).is_dir()]
    for part in parts or [root]:
        videos = FolderSet(part)
        names = videos.classes.get(TARGET, [])
        here = (str(path.relative_to(root)) for path in videos.paths)
        labels = videos.labels.get(TARGET, [UNKNOWN] * len(videos))
        found.add(
            part.name,
            (Item(n, names[i] if i >= 0 else "", p) for n, i, p in zip(here, labels, videos.paths, strict=True)),
        )
        whole = min(_KINETICS_CLASSES, key=lambda count: abs(count - len(names)))
        if len(names) != whole:
            reason = f"{len(names)} of {whole} class folders in {part}; a CSV given by --annotations names the others"
            found.items[reason] = Item(reason, "", None)
    found.notes.append("no CSV is there; videos were counted by class folders alone")


def _ssv2(found: Contents, root: Path, notes: Path) -> None:
    folder = notes if notes.is_dir() else notes.parent
    labels = next(iter(sorted(folder.glob("*labels.json"))), folder / "something-something-v2-labels.json")
    for part in ("train", "validation", "test"):
        file = next(iter(sorted(folder.glob(f"*{part}.json"))), None)
        if file is None:
            found.lack(f"something-something-v2-{part}.json")
        else:
            found.listed(file.name, ssv2_list(labels, file))


def _halves(listed: Callable[..., Listing], names: dict[bool, str]) -> Callable[[Contents, Path, Path], None]:
    """A set with one list to train on and one to test on."""

    def read(found: Contents, root: Path, notes: Path) -> None:
        folder = notes if notes.is_dir() else notes.parent
        for train, name in names.items():
            try:
                listing = listed(folder, train=train)
            except StillmotionError:
                if (folder / name).exists():
                    raise
                found.lack(name)
            else:
                found.listed(name, listing)

    return read


def _ava(found: Contents, root: Path, notes: Path) -> None:
    """Videos or folders of frames by the ids in the annotation CSVs, in the folder or one level below."""
    for half in ("train", "val"):
        files = [file for pattern in ("", "*/") for file in sorted(notes.glob(f"{pattern}ava_{half}_v2*.csv"))]
        if not files:
            found.lack(f"ava_{half}_v2.2.csv")
            continue
        ids = dict.fromkeys(line.split(",")[0] for line in read_lines(files[-1]))
        found.listed(files[-1].name, Listing([((video,), UNKNOWN) for video in ids], []))


def _masks(kind: Literal["davis", "vip"]) -> Callable[[Contents, Path, Path], None]:
    def read(found: Contents, root: Path, notes: Path) -> None:
        resolution = "480p"
        frames = existing(root / ("JPEGImages" if kind == "davis" else "Images"))
        if kind == "davis":
            sizes = {folder.name: sum(1 for _ in folder.iterdir()) for folder in frames.iterdir() if folder.is_dir()}
            resolution = max(sizes, key=lambda name: (sizes[name], name == resolution), default=resolution)
            frames /= resolution
            lists = {
                split: [root / "ImageSets" / year / f"{split}.txt" for year in ("2017", "2016", resolution)]
                for split in ("train", "val")
            }
        else:
            lists = {split: [root / "lists" / f"{split}_videos.txt"] for split in ("train", "val")}
        for split, files in lists.items():
            file = next((file for file in files if file.exists()), None)
            if file is None:
                found.lack(str(files[0].relative_to(root)))
                continue
            opened, broken = open_masks(kind, root, resolution=resolution, split=split)
            items = [Item(s.name, "", s.video.path, s.masks[0]) for s in opened]
            items += [
                Item(name, "", frames / name if (frames / name).is_dir() else None, fault=why) for name, why in broken
            ]
            found.add(str(file.relative_to(root)), items)

    return read


def _jhmdb(found: Contents, root: Path, notes: Path) -> None:
    for split in (1, 2, 3):
        name = f"splits/*_test_split{split}.txt"
        items = []
        for file in sorted(root.glob(name)):
            action = file.name.removesuffix(f"_test_split{split}.txt")
            for line in read_lines(file):
                place = f"{action}/{Path(line.split()[0]).stem}"
                frames = root / "Rename_Images" / place
                joints = root / "joint_positions" / place / "joint_positions.mat"
                items.append(Item(place, action, frames if frames.is_dir() else None, joints))
        if items:
            found.add(name, items)
        else:
            found.lack(name)


def _breakfast(found: Contents, root: Path, notes: Path) -> None:
    """Videos as they are published (P03/cam01/P03_milk.avi) or called by their names, or ready-made features."""
    splits = notes / "splits" if (notes / "splits").is_dir() else notes
    for half in ("train", "test"):
        name = f"{half}.split1.bundle"
        if not (splits / name).exists():
            found.lack(name)
            continue
        names = read_bundle(splits / name)
        listing = Listing([(_breakfast_names(video), UNKNOWN) for video in names], [])
        items = []
        for video, path in zip(names, locate(found.names, listing), strict=True):
            features = root / "features" / f"{video}.npy"
            place = features if path is None and features.exists() else path
            items.append(Item(video, "", place, notes / "groundTruth" / f"{video}.txt"))
        found.add(name, items)


def _breakfast_names(video: str) -> tuple[str, ...]:
    person, camera, rest = video.split("_", 2)
    if camera == "stereo01":
        return video, f"{person}/stereo/{rest}_ch0"
    return video, f"{person}/{camera}/{rest}"


_READERS: dict[str, Callable[[Contents, Path, Path], None]] = {
    "ucf101": _ucf101,
    "hmdb51": _hmdb51,
    "kinetics": _kinetics,
    "ssv2": _ssv2,
    "gym99": _halves(gym99_list, {True: "gym99_train_element_v1.1.txt", False: "gym99_val_element.txt"}),
    "diving48": _halves(diving48_list, {True: "Diving48_V2_train.json", False: "Diving48_V2_test.json"}),
    "ava": _ava,
    "davis": _masks("davis"),
    "vip": _masks("vip"),
    "jhmdb": _jhmdb,
    "breakfast": _breakfast,
}
