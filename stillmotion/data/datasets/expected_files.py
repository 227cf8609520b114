"""Which files each public data set should hold, according to its own lists."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from stillmotion.data.datasets.annotations import (
    AnnotationList,
    find_listed_videos,
    index_videos_by_name,
    matching_files,
    read_kinetics,
    read_ssv2,
)
from stillmotion.data.datasets.base import UNKNOWN_LABEL
from stillmotion.data.datasets.breakfast import (
    FEATURES_DIR,
    GROUND_TRUTH_DIR,
    SPLITS_DIR,
    find_videos_by_id,
    read_bundle_ids,
)
from stillmotion.data.datasets.csv_list import ListDataset, csv_has_column
from stillmotion.data.datasets.davis import MaskLayout, mask_paths, open_mask_sequences
from stillmotion.data.datasets.folder import VideoFolder
from stillmotion.data.datasets.jhmdb import jhmdb_files
from stillmotion.data.datasets.list_files import check_exists, read_text_lines
from stillmotion.errors import StillmotionError

_KINETICS_CLASSES = (400, 600, 700)


@dataclass(frozen=True)
class ExpectedVideo:
    """A video that a list names.

    Attributes:
        name: Name in the list.
        class_name: Name of its class, or empty.
        path: The video; None if it does not exist.
        companion_file: Mask, joints or frame labels of the video.
        known_fault: Error found while the lists were read.
    """

    name: str
    class_name: str
    path: Path | None
    companion_file: Path | None = None
    known_fault: str = ""


@dataclass
class ExpectedFiles:
    """The videos that the lists of a data set name.

    Attributes:
        root: Folder of the videos.
        official_counts: Number of videos in each official list, by its name.
        videos: Expected videos by name.
        remarks: Lines about the lists themselves.
    """

    root: Path
    official_counts: Mapping[str, int] = field(default_factory=dict)
    videos: dict[str, ExpectedVideo] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @cached_property
    def videos_by_name(self) -> dict[str, Path]:
        """Paths of the existing videos by name, as `index_videos_by_name` returns them."""
        return index_videos_by_name(self.root)

    def add_annotations(self, name: str, annotations: AnnotationList) -> None:
        """Add the videos of an annotation list.

        Args:
            name: Name of the list.
            annotations: Its content.
        """
        paths = find_listed_videos(self.videos_by_name, annotations)
        classes = annotations.classes
        self.add_videos(
            name,
            (
                ExpectedVideo(names[0], "" if label == UNKNOWN_LABEL else classes[label], path)
                for (names, label), path in zip(annotations.entries, paths, strict=True)
            ),
        )

    def add_videos(self, name: str, videos: Iterable[ExpectedVideo]) -> None:
        """Add the videos of a list; a video of several lists counts once.

        Args:
            name: Name of the list.
            videos: Its videos.
        """
        added = list(videos)
        self.videos |= {video.name: video for video in added}
        official = self.official_counts.get(name, len(added))
        if official != len(added):
            self.remarks.append(f"{name} names {len(added):,} videos; the official list names {official:,}")

    def add_missing_list(self, name: str) -> None:
        """Note that a list does not exist.

        Args:
            name: Name of the list.
        """
        self.remarks.append(f"{name} does not exist; its videos were not checked")


class SplitList(NamedTuple):
    """An official list of a data set with train and test lists.

    Attributes:
        train: Whether it is a training list; None if it names both.
        fold: Fold, counted from 1.
        num_videos: Number of videos in the official list.
    """

    train: bool | None
    fold: int = 1
    num_videos: int | None = None


def expect_train_test(
    read: Callable[..., AnnotationList], lists: Mapping[str, SplitList], expected: ExpectedFiles, annotations: Path
) -> None:
    """Add the videos of train and test lists.

    Args:
        read: Reader of a list, such as `read_ucf101`.
        lists: Official lists by file name.
        expected: Where the videos are added.
        annotations: Folder of the lists, or a file in it.
    """
    folder = annotations if annotations.is_dir() else annotations.parent
    for name, split in lists.items():
        try:
            listing = read(folder, train=split.train, fold=split.fold)
        except StillmotionError:
            if any(folder.glob(name)):
                raise
            expected.add_missing_list(name)
        else:
            expected.add_annotations(name, listing)


def expect_kinetics(expected: ExpectedFiles, annotations: Path) -> None:
    """Add the videos of Kinetics: from CSVs with youtube_id, from lists `path label`, or from class folders.

    Args:
        expected: Where the videos are added.
        annotations: List file, or folder of the lists.
    """
    root = expected.root
    files = [annotations] if annotations.is_file() else sorted(annotations.glob("*.csv"))
    for file in files:
        if csv_has_column(file, "youtube_id"):
            expected.add_annotations(file.name, read_kinetics(file))
        else:
            listed = ListDataset(file, root)
            expected.add_videos(
                file.name,
                (
                    ExpectedVideo(str(path), class_name or "", path if path.exists() else None)
                    for path, class_name in zip(listed.paths, listed.class_names(), strict=True)
                ),
            )
    if files:
        return
    splits = [root / name for name in ("train", "val", "validate", "test") if (root / name).is_dir()]
    for split in splits or [root]:
        videos = VideoFolder(split)
        expected.add_videos(
            split.name,
            (
                ExpectedVideo(str(path.relative_to(root)), class_name or "", path)
                for path, class_name in zip(videos.paths, videos.class_names(), strict=True)
            ),
        )
        num_classes = len(set(videos.class_names()) - {None})
        official = min(_KINETICS_CLASSES, key=lambda count: abs(count - num_classes))
        if num_classes != official:
            reason = f"{num_classes} of {official} class folders in {split}; --annotations CSV names the others"
            expected.videos[reason] = ExpectedVideo(reason, "", None)
    expected.remarks.append("There is no CSV; videos were counted by class folders")


def expect_ssv2(expected: ExpectedFiles, annotations: Path) -> None:
    """Add the videos of Something-Something v2.

    Args:
        expected: Where the videos are added.
        annotations: Folder of the JSON files, or a file in it.
    """
    folder = annotations if annotations.is_dir() else annotations.parent
    labels = matching_files(folder, "*labels.json")[0]
    for split in ("train", "validation", "test"):
        files = matching_files(folder, f"*{split}.json", required=False)
        if files:
            expected.add_annotations(files[0].name, read_ssv2(labels, files[0]))
        else:
            expected.add_missing_list(f"something-something-v2-{split}.json")


def expect_ava(expected: ExpectedFiles, annotations: Path) -> None:
    """Add the videos of AVA, as files or folders of frames.

    Args:
        expected: Where the videos are added.
        annotations: Folder of the annotation CSVs.
    """
    from stillmotion.data.datasets.ava import find_annotation_files  # which imports torch

    for split in ("train", "val"):
        files = find_annotation_files(annotations, split, required=False)
        if not files:
            expected.add_missing_list(f"ava_{split}_v2.2.csv")
            continue
        ids = dict.fromkeys(line.split(",")[0] for line in read_text_lines(files[-1]))
        expected.add_annotations(files[-1].name, AnnotationList([((video,), UNKNOWN_LABEL) for video in ids], []))


def expect_masks(layout: MaskLayout, expected: ExpectedFiles, annotations: Path) -> None:
    """Add the sequences of DAVIS, at the resolution that most of them have, or of VIP, with their first masks.

    Args:
        layout: Which data set.
        expected: Where the videos are added.
        annotations: Ignored; lists are in the folder of the data set.
    """
    root, resolution = expected.root, "480p"
    if layout == "davis":
        images = check_exists(root / "JPEGImages")
        sizes = {folder.name: sum(1 for _ in folder.iterdir()) for folder in images.iterdir() if folder.is_dir()}
        resolution = max(sizes, key=lambda name: (sizes[name], name == resolution), default=resolution)
    for split in ("train", "val"):
        paths = mask_paths(layout, root, resolution=resolution, split=split)
        check_exists(paths.frames)
        file = paths.existing_list()
        if file is None:
            expected.add_missing_list(str(paths.list_files[0].relative_to(root)))
            continue
        sequences, failed = open_mask_sequences(layout, root, resolution=resolution, split=split)
        videos = [ExpectedVideo(each.name, "", each.video.path, each.masks[0]) for each in sequences]
        for name, reason in failed:
            frames = paths.frames / name
            videos.append(ExpectedVideo(name, "", frames if frames.is_dir() else None, known_fault=reason))
        expected.add_videos(str(file.relative_to(root)), videos)


def expect_jhmdb(expected: ExpectedFiles, annotations: Path) -> None:
    """Add the sequences of JHMDB, with their joints.

    Args:
        expected: Where the videos are added.
        annotations: Ignored; lists are in the folder of the data set.
    """
    for split in (1, 2, 3):
        name = f"splits/*_test_split{split}.txt"
        if not any(expected.root.glob(name)):
            expected.add_missing_list(name)
            continue
        files = jhmdb_files(expected.root, split, test_only=False)
        expected.add_videos(
            name,
            (
                ExpectedVideo(video, Path(video).parts[0], frames if frames.is_dir() else None, joints)
                for video, (frames, joints) in files.items()
            ),
        )


def expect_breakfast(expected: ExpectedFiles, annotations: Path) -> None:
    """Add the videos of Breakfast, or their precomputed features, with their frame labels.

    Args:
        expected: Where the videos are added.
        annotations: Folder of the bundles, or the one that holds `splits` and `groundTruth`.
    """
    splits = annotations / SPLITS_DIR if (annotations / SPLITS_DIR).is_dir() else annotations
    videos_by_id = find_videos_by_id(expected.root)
    for split in ("train", "test"):
        name = f"{split}.split1.bundle"
        if not (splits / name).exists():
            expected.add_missing_list(name)
            continue
        videos = []
        for video in read_bundle_ids(splits / name):
            features = expected.root / FEATURES_DIR / f"{video}.npy"
            path = videos_by_id.get(video, features if features.exists() else None)
            videos.append(ExpectedVideo(video, "", path, annotations / GROUND_TRUTH_DIR / f"{video}.txt"))
        expected.add_videos(name, videos)
