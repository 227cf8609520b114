"""What a published data set should hold, by its own lists, and where each of its videos is in a folder."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from stillmotion.data.datasets.annotations import (
    AnnotationList,
    check_exists,
    find_listed_videos,
    index_videos_by_name,
    read_kinetics,
    read_ssv2,
    read_text_lines,
)
from stillmotion.data.datasets.base import DEFAULT_TARGET, UNKNOWN_LABEL
from stillmotion.data.datasets.breakfast import read_bundle_ids
from stillmotion.data.datasets.csv_list import ListDataset, csv_has_column
from stillmotion.data.datasets.davis import open_mask_sequences
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.errors import StillmotionError

_KINETICS_CLASSES = (400, 600, 700)


@dataclass(frozen=True)
class ExpectedVideo:
    """A video that a list names.

    class_name: its class, or empty. path: where it is; None: it is not there.
    companion_file: a file that belongs to it (mask, joints, frame labels). fault: what is known to be wrong with it.
    """

    name: str
    class_name: str
    path: Path | None
    companion_file: Path | None = None
    known_fault: str = ""


@dataclass
class ExpectedFiles:
    """The listed videos by name, and remarks about the lists.

    root: where they are looked for. official: how many videos the official lists name, by the names of the lists.
    """

    root: Path
    official_counts: Mapping[str, int] = field(default_factory=dict)
    videos: dict[str, ExpectedVideo] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @cached_property
    def videos_by_name(self) -> dict[str, Path]:
        return index_videos_by_name(self.root)

    def add_annotations(self, name: str, annotations: AnnotationList) -> None:
        """The videos of a published list, by their names."""
        places = zip(annotations.entries, find_listed_videos(self.videos_by_name, annotations), strict=True)
        classes = annotations.classes
        self.add_videos(
            name, (ExpectedVideo(n[0], "" if y == UNKNOWN_LABEL else classes[y], path) for (n, y), path in places)
        )

    def add_videos(self, name: str, videos: Iterable[ExpectedVideo]) -> None:
        """The videos of one list; a video of several lists is taken once."""
        found = list(videos)
        self.videos |= {item.name: item for item in found}
        official = self.official_counts.get(name, len(found))
        if official != len(found):
            self.remarks.append(f"{name} names {len(found):,} videos; the official list names {official:,}")

    def add_missing_list(self, name: str) -> None:
        """A list that is not there."""
        self.remarks.append(f"{name} is not there; its videos were not looked for")


class SplitList(NamedTuple):
    """A list of a set in halves.

    train: which half; None where it names both. fold: counts from 1. videos: how many the official list names.
    """

    train: bool | None
    fold: int = 1
    num_videos: int | None = None


def expect_train_test(
    read: Callable[..., AnnotationList], lists: Mapping[str, SplitList], expected: ExpectedFiles, annotations: Path
) -> None:
    """The lists of a set in halves, by their official names. read: as `layouts.py` says."""
    folder = annotations if annotations.is_dir() else annotations.parent
    for name, half in lists.items():
        try:
            listing = read(folder, train=half.train, fold=half.fold)
        except StillmotionError:
            if any(folder.glob(name)):
                raise
            expected.add_missing_list(name)
        else:
            expected.add_annotations(name, listing)


def expect_kinetics(expected: ExpectedFiles, annotations: Path) -> None:
    """By CSVs with youtube_id, by lists `path label`, or by class folders alone."""
    root = expected.root
    files = [annotations] if annotations.is_file() else sorted(annotations.glob("*.csv"))
    for file in files:
        if csv_has_column(file, "youtube_id"):
            expected.add_annotations(file.name, read_kinetics(file))
        else:
            listed = ListDataset(file, root)
            labels = listed.labels.get(DEFAULT_TARGET, [UNKNOWN_LABEL] * len(listed))
            expected.add_videos(
                file.name,
                (
                    ExpectedVideo(
                        str(path),
                        "" if label == UNKNOWN_LABEL else listed.classes[DEFAULT_TARGET][label],
                        path if there else None,
                    )
                    for path, label, there in zip(listed.paths, labels, map(Path.exists, listed.paths), strict=True)
                ),
            )
    if files:
        return
    parts = [root / name for name in ("train", "val", "validate", "test") if (root / name).is_dir()]
    for part in parts or [root]:
        videos = VideoFolder(part)
        names = videos.classes.get(DEFAULT_TARGET, [])
        here = (str(path.relative_to(root)) for path in videos.paths)
        labels = videos.labels.get(DEFAULT_TARGET, [UNKNOWN_LABEL] * len(videos))
        expected.add_videos(
            part.name,
            (
                ExpectedVideo(n, names[i] if i >= 0 else "", p)
                for n, i, p in zip(here, labels, videos.paths, strict=True)
            ),
        )
        whole = min(_KINETICS_CLASSES, key=lambda count: abs(count - len(names)))
        if len(names) != whole:
            reason = f"{len(names)} of {whole} class folders in {part}; a CSV given by --annotations names the others"
            expected.videos[reason] = ExpectedVideo(reason, "", None)
    expected.remarks.append("no CSV is there; videos were counted by class folders alone")


def expect_ssv2(expected: ExpectedFiles, annotations: Path) -> None:
    """The three JSON files of ids, by the one of labels; of several copies the first."""
    folder = annotations if annotations.is_dir() else annotations.parent
    labels = next(iter(sorted(folder.glob("*labels.json"))), folder / "something-something-v2-labels.json")
    for part in ("train", "validation", "test"):
        file = next(iter(sorted(folder.glob(f"*{part}.json"))), None)
        if file is None:
            expected.add_missing_list(f"something-something-v2-{part}.json")
        else:
            expected.add_annotations(file.name, read_ssv2(labels, file))


def expect_ava(expected: ExpectedFiles, annotations: Path) -> None:
    """Videos or folders of frames by the ids in the annotation CSVs, in the folder or one level below."""
    for half in ("train", "val"):
        files = [file for pattern in ("", "*/") for file in sorted(annotations.glob(f"{pattern}ava_{half}_v2*.csv"))]
        if not files:
            expected.add_missing_list(f"ava_{half}_v2.2.csv")
            continue
        ids = dict.fromkeys(line.split(",")[0] for line in read_text_lines(files[-1]))
        expected.add_annotations(files[-1].name, AnnotationList([((video,), UNKNOWN_LABEL) for video in ids], []))


def expect_masks(layout: Literal["davis", "vip"], expected: ExpectedFiles, annotations: Path) -> None:
    """DAVIS at the resolution of which most sequences are there, or VIP; with the mask of each first frame."""
    root, resolution = expected.root, "480p"
    frames = check_exists(root / ("JPEGImages" if layout == "davis" else "Images"))
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
            expected.add_missing_list(str(files[0].relative_to(root)))
            continue
        opened, broken = open_mask_sequences(layout, root, resolution=resolution, split=split)
        items = [ExpectedVideo(s.name, "", s.video.path, s.masks[0]) for s in opened]
        items += [
            ExpectedVideo(name, "", frames / name if (frames / name).is_dir() else None, known_fault=why)
            for name, why in broken
        ]
        expected.add_videos(str(file.relative_to(root)), items)


def expect_jhmdb(expected: ExpectedFiles, annotations: Path) -> None:
    """Folders of frames by the lists in `splits`, with their joints."""
    root = expected.root
    for split in (1, 2, 3):
        name = f"splits/*_test_split{split}.txt"
        items = []
        for file in sorted(root.glob(name)):
            action = file.name.removesuffix(f"_test_split{split}.txt")
            for line in read_text_lines(file):
                place = f"{action}/{Path(line.split()[0]).stem}"
                frames = root / "Rename_Images" / place
                joints = root / "joint_positions" / place / "joint_positions.mat"
                items.append(ExpectedVideo(place, action, frames if frames.is_dir() else None, joints))
        if items:
            expected.add_videos(name, items)
        else:
            expected.add_missing_list(name)


def expect_breakfast(expected: ExpectedFiles, annotations: Path) -> None:
    """Videos as they are published (P03/cam01/P03_milk.avi) or called by their names, or ready-made features."""
    splits = annotations / "splits" if (annotations / "splits").is_dir() else annotations
    for half in ("train", "test"):
        name = f"{half}.split1.bundle"
        if not (splits / name).exists():
            expected.add_missing_list(name)
            continue
        names = read_bundle_ids(splits / name)
        listing = AnnotationList([(_breakfast_names(video), UNKNOWN_LABEL) for video in names], [])
        items = []
        for video, path in zip(names, find_listed_videos(expected.videos_by_name, listing), strict=True):
            features = expected.root / "features" / f"{video}.npy"
            place = features if path is None and features.exists() else path
            items.append(ExpectedVideo(video, "", place, annotations / "groundTruth" / f"{video}.txt"))
        expected.add_videos(name, items)


def _breakfast_names(video: str) -> tuple[str, ...]:
    person, camera, rest = video.split("_", 2)
    if camera == "stereo01":
        return video, f"{person}/stereo/{rest}_ch0"
    return video, f"{person}/{camera}/{rest}"
