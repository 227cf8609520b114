"""What a published data set should hold, by its own lists, and where each of its videos is in a folder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from stillmotion.data.breakfast import read_bundle
from stillmotion.data.dense import open_masks
from stillmotion.data.layouts import Listing, existing, kinetics_list, locate, names_below, read_lines, ssv2_list
from stillmotion.data.paths import TARGET, UNKNOWN, has_column
from stillmotion.data.sets import FolderSet, ListSet
from stillmotion.errors import StillmotionError

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
    """The listed videos by name, and remarks about the lists.

    root: where they are looked for. official: how many videos the official lists name, by the names of the lists.
    """

    root: Path
    official: Mapping[str, int] = field(default_factory=dict)
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
        official = self.official.get(name, len(found))
        if official != len(found):
            self.notes.append(f"{name} names {len(found):,} videos; the official list names {official:,}")

    def lack(self, name: str) -> None:
        """A list that is not there."""
        self.notes.append(f"{name} is not there; its videos were not looked for")


class Half(NamedTuple):
    """A list of a set in halves.

    train: which half; None where it names both. fold: counts from 1. videos: how many the official list names.
    """

    train: bool | None
    fold: int = 1
    videos: int | None = None


def add_halves(read: Callable[..., Listing], lists: Mapping[str, Half], found: Contents, notes: Path) -> None:
    """The lists of a set in halves, by their official names. read: as `layouts.py` says."""
    folder = notes if notes.is_dir() else notes.parent
    for name, half in lists.items():
        try:
            listing = read(folder, train=half.train, fold=half.fold)
        except StillmotionError:
            if any(folder.glob(name)):
                raise
            found.lack(name)
        else:
            found.listed(name, listing)


def add_kinetics(found: Contents, notes: Path) -> None:
    """By CSVs with youtube_id, by lists `path label`, or by class folders alone."""
    root = found.root
    files = [notes] if notes.is_file() else sorted(notes.glob("*.csv"))
    for file in files:
        if has_column(file, "youtube_id"):
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


def add_ssv2(found: Contents, notes: Path) -> None:
    """The three JSON files of ids, by the one of labels; of several copies the first."""
    folder = notes if notes.is_dir() else notes.parent
    labels = next(iter(sorted(folder.glob("*labels.json"))), folder / "something-something-v2-labels.json")
    for part in ("train", "validation", "test"):
        file = next(iter(sorted(folder.glob(f"*{part}.json"))), None)
        if file is None:
            found.lack(f"something-something-v2-{part}.json")
        else:
            found.listed(file.name, ssv2_list(labels, file))


def add_ava(found: Contents, notes: Path) -> None:
    """Videos or folders of frames by the ids in the annotation CSVs, in the folder or one level below."""
    for half in ("train", "val"):
        files = [file for pattern in ("", "*/") for file in sorted(notes.glob(f"{pattern}ava_{half}_v2*.csv"))]
        if not files:
            found.lack(f"ava_{half}_v2.2.csv")
            continue
        ids = dict.fromkeys(line.split(",")[0] for line in read_lines(files[-1]))
        found.listed(files[-1].name, Listing([((video,), UNKNOWN) for video in ids], []))


def add_masks(layout: Literal["davis", "vip"], found: Contents, notes: Path) -> None:
    """DAVIS at the resolution of which most sequences are there, or VIP; with the mask of each first frame."""
    root, resolution = found.root, "480p"
    frames = existing(root / ("JPEGImages" if layout == "davis" else "Images"))
    if layout == "davis":
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
        opened, broken = open_masks(layout, root, resolution=resolution, split=split)
        items = [Item(s.name, "", s.video.path, s.masks[0]) for s in opened]
        items += [
            Item(name, "", frames / name if (frames / name).is_dir() else None, fault=why) for name, why in broken
        ]
        found.add(str(file.relative_to(root)), items)


def add_jhmdb(found: Contents, notes: Path) -> None:
    """Folders of frames by the lists in `splits`, with their joints."""
    root = found.root
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


def add_breakfast(found: Contents, notes: Path) -> None:
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
            features = found.root / "features" / f"{video}.npy"
            place = features if path is None and features.exists() else path
            items.append(Item(video, "", place, notes / "groundTruth" / f"{video}.txt"))
        found.add(name, items)


def _breakfast_names(video: str) -> tuple[str, ...]:
    person, camera, rest = video.split("_", 2)
    if camera == "stereo01":
        return video, f"{person}/stereo/{rest}_ch0"
    return video, f"{person}/{camera}/{rest}"
