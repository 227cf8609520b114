"""`stillmotion data verify`: compare a folder with the official lists and read a frame of each video.

Copies made by `stillmotion prepare` are compared with the hashes in their manifest, too.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.davis import read_mask
from stillmotion.data.datasets.expected_files import ExpectedFiles, ExpectedVideo
from stillmotion.data.datasets.jhmdb import read_jhmdb_joints
from stillmotion.data.datasets.list_files import check_exists
from stillmotion.data.datasets.public_datasets import PUBLIC_DATASETS, find_annotations, verifiable_datasets
from stillmotion.data.transcode.manifest import find_copy_damage, read_entries
from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError, VideoError, as_video_error
from stillmotion.utils.files import write_text
from stillmotion.utils.progress import report_progress
from stillmotion.utils.registry import did_you_mean
from stillmotion.utils.worker_processes import WorkerDied, run_in_processes

_MAX_NAMES = 20


@dataclass(frozen=True)
class VerificationReport:
    """Result of verifying a data set.

    Attributes:
        dataset: Name of the data set.
        root: Its folder.
        num_listed: Number of videos in the lists.
        num_found: Number of these that exist.
        classes: Names of all classes.
        missing_classes: Names of the classes without any video.
        missing_files: Missing videos of the other classes, and missing companion files.
        unreadable: Name and reason of each video that cannot be read.
        remarks: Lines about the lists themselves.
    """

    dataset: str
    root: str
    num_listed: int
    num_found: int
    classes: list[str]
    missing_classes: list[str]
    missing_files: list[str]
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing or unreadable."""
        return not (self.missing_classes or self.missing_files or self.unreadable)

    def write_names(self, file: str | Path) -> None:
        """Write the names of everything missing or unreadable, one per line.

        Args:
            file: File to write.
        """
        names = [*self.missing_classes, *self.missing_files, *(name for name, _ in self.unreadable)]
        write_text(file, "".join(f"{name}\n" for name in names), option_name="--failures-file")


def verify_dataset(
    name: str, root: str | Path, *, annotations: str | Path | None = None, num_workers: int = 1
) -> VerificationReport:
    """Look for every video that the lists of a data set name, and read a frame of each, with its companion file.

    Args:
        name: One of `verifiable_datasets()`.
        root: Folder of the data set.
        annotations: Folder or file of the lists, if they are not in the folder or next to it.
        num_workers: Number of reading processes.
    """
    if num_workers < 1:
        raise StillmotionError(f"num_workers is {num_workers}; must be at least 1.")
    expected = _collect_expected(name, root, annotations)
    videos = list(expected.videos.values())
    by_class: defaultdict[str, list[ExpectedVideo]] = defaultdict(list)
    for video in videos:
        by_class[video.class_name].append(video)
    missing_classes = sorted(
        class_name for class_name, members in by_class.items() if class_name and all(v.path is None for v in members)
    )
    missing = [v.name for v in videos if v.path is None and v.class_name not in set(missing_classes)]
    existing = [video for video in videos if video.path is not None]
    copy_hashes = {Path(root) / entry.path: entry.hash for entry in read_entries(Path(root)) if not entry.error}
    missing += [
        str(video.companion_file)
        for video in existing
        if video.companion_file is not None and not video.companion_file.exists()
    ]
    faults = {}
    for done, (video, fault) in enumerate(_read_all(existing, copy_hashes, num_workers), 1):
        faults[video] = fault
        report_progress(done, len(existing))
    return VerificationReport(
        dataset=name,
        root=str(root),
        num_listed=len(videos),
        num_found=len(existing),
        classes=sorted(class_name for class_name in by_class if class_name),
        missing_classes=missing_classes,
        missing_files=missing,
        unreadable=[(video.name, faults[video]) for video in existing if faults[video]],
        remarks=expected.remarks,
    )


def format_verification(report: VerificationReport, *, max_names: int = _MAX_NAMES) -> list[str]:
    """Lines for the terminal about a verified data set.

    Args:
        report: The result.
        max_names: Maximum number of missing and of unreadable videos to name.
    """
    lines = [f"{report.dataset} in {report.root}: Found {report.num_found:,} of {report.num_listed:,} listed videos"]
    lines += report.remarks
    if report.missing_classes:
        lines.append(f"{len(report.missing_classes)} of {len(report.classes)} classes have no video:")
        lines += [f"  {name}" for name in report.missing_classes]
    unreadable = [reason for _, reason in report.unreadable]
    for description, names in (("missing", report.missing_files), ("unreadable", unreadable)):
        if names:
            lines.append(f"{len(names):,} {description}:")
            lines += [f"  {name}" for name in names[:max_names]]
        if len(names) > max_names:
            lines.append(f"  and {len(names) - max_names:,} more (--failures-file FILE writes all)")
    if report.is_complete:
        lines.append("Complete: nothing missing or unreadable")
    return lines


def _collect_expected(name: str, root: str | Path, annotations: str | Path | None) -> ExpectedFiles:
    """The videos that the lists of a data set name, looked up below a folder."""
    public = PUBLIC_DATASETS.get(name)
    if public is None or public.expected_files is None:
        raise StillmotionError(f"there is no data set {name!r} to verify{did_you_mean(name, verifiable_datasets())}")
    folder = check_exists(Path(root))
    lists = check_exists(Path(annotations)) if annotations is not None else None
    if lists is None and public.marker_file:
        located = find_annotations(folder, {name: public})
        if located is None:
            raise StillmotionError(
                f"{folder}: no annotation lists of {name} in this folder or next to it. "
                "Give their folder with --annotations."
            )
        lists = located[1]
    expected = ExpectedFiles(folder, public.official_counts)
    public.expected_files(expected, lists or folder)
    if not expected.videos:
        raise StillmotionError(
            f"{lists or folder}: no list of the videos of {name}. Give the folder of the lists with --annotations."
        )
    return expected


def _read_all(
    videos: Sequence[ExpectedVideo], copy_hashes: Mapping[Path, str], num_workers: int
) -> Iterator[tuple[ExpectedVideo, str]]:
    """Read videos; yield each with its fault as it is done."""
    todo = [(video, copy_hashes.get(video.path) if video.path is not None else None) for video in videos]
    if num_workers == 1:
        yield from ((video, _read_fault((video, copy_hash))) for video, copy_hash in todo)
        return
    with closing(run_in_processes(_read_fault, todo, num_workers)) as results:
        for (video, _), fault in results:
            yield video, f"{video.name}: {fault}" if isinstance(fault, WorkerDied) else fault


def _read_fault(todo: tuple[ExpectedVideo, str | None]) -> str:
    """Why a video or its companion file cannot be read, or how it differs from its hash; empty if all is well."""
    video, copy_hash = todo
    assert video.path is not None
    try:
        with as_video_error(video.path):
            if video.path.suffix == ".npy":
                _read_features(video.path)
            else:
                open_video(video.path).get_frames([0])
        if video.companion_file is not None and video.companion_file.exists():
            with as_video_error(video.companion_file):
                _read_companion(video.companion_file)
    except StillmotionError as error:
        return str(error)
    return video.known_fault or ("" if copy_hash is None else find_copy_damage(video.path, copy_hash))


def _read_features(file: Path) -> None:
    try:
        np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise VideoError(f"{file}: cannot be read as features ({error}).") from None


def _read_companion(file: Path) -> None:
    if file.suffix == ".png":
        read_mask(file)
    elif file.suffix == ".mat":
        read_jhmdb_joints(file)
    elif not file.read_text(errors="replace").strip():
        raise VideoError(f"{file}: no frame labels.")
