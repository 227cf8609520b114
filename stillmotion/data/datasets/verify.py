"""`stillmotion data check`: whether a folder holds a published data set, whole and readable."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stillmotion.data.datasets.annotations import check_exists
from stillmotion.data.datasets.davis import read_mask
from stillmotion.data.datasets.expected_files import ExpectedFiles, ExpectedVideo
from stillmotion.data.datasets.jhmdb import read_jhmdb_joints
from stillmotion.data.datasets.registry import PUBLIC_DATASETS, find_annotations, verifiable_datasets
from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.utils.files import write_text
from stillmotion.utils.processes import WorkerDied, run_in_processes
from stillmotion.utils.progress import report_progress
from stillmotion.utils.registry import did_you_mean

_MAX_NAMES = 20


@dataclass(frozen=True)
class VerificationReport:
    """What was found of a set.

    num_listed, num_found: videos that the lists name, and those of them that are there.
    classes: names of all classes, and absent those of which no video is there.
    missing_files: videos of other classes, and files that belong to a video. unreadable: names with the reason.
    remarks: about the lists themselves.
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
        """Nothing is missing or unreadable."""
        return not (self.missing_classes or self.missing_files or self.unreadable)

    def write_names(self, file: str | Path) -> None:
        """Write the names of all that is missing or unreadable, one a line."""
        names = [*self.missing_classes, *self.missing_files, *(name for name, _ in self.unreadable)]
        write_text(file, "".join(f"{name}\n" for name in names), option_name="--failures-file")


def verify_dataset(
    name: str,
    root: str | Path,
    *,
    annotations: str | Path | None = None,
    num_workers: int = 1,
) -> VerificationReport:
    """Look for every video that a set's lists name, and read a frame of each, with what belongs to it.

    name: one of `checkable()`.
    annotations: the folder (or file) of the lists, where they are not in the folder or beside it.
    num_workers: processes that read.
    """
    if num_workers < 1:
        raise StillmotionError(f"workers is {num_workers}; it must be at least 1")
    found = _collect_expected(name, root, annotations)
    items = list(found.videos.values())
    groups: defaultdict[str, list[ExpectedVideo]] = defaultdict(list)
    for item in items:
        groups[item.class_name].append(item)
    absent = sorted(name for name, some in groups.items() if name and all(item.path is None for item in some))
    gone = set(absent)
    missing = [item.name for item in items if item.path is None and item.class_name not in gone]
    there = [item for item in items if item.path is not None]
    missing += [
        str(item.companion_file)
        for item in there
        if item.companion_file is not None and not item.companion_file.exists()
    ]
    faults = {}
    for done, (item, fault) in enumerate(_read_all(there, num_workers), 1):
        faults[item] = fault
        report_progress(done, len(there))
    unreadable = [(item.name, faults[item]) for item in there if faults[item]]
    classes = sorted(name for name in groups if name)
    return VerificationReport(
        name, str(root), len(items), len(there), classes, absent, missing, unreadable, found.remarks
    )


def format_verification(report: VerificationReport, *, max_names: int = _MAX_NAMES) -> list[str]:
    """What was found, as lines for a terminal; of missing and unreadable videos, so many are named."""
    lines = [
        f"{report.dataset} in {report.root}: {report.num_found:,} of {report.num_listed:,} listed videos are there"
    ]
    lines += report.remarks
    if report.missing_classes:
        lines.append(f"{len(report.missing_classes)} of {len(report.classes)} classes are missing:")
        lines += [f"  {name}" for name in report.missing_classes]
    for what, names in {
        "missing": report.missing_files,
        "unreadable": [reason for _, reason in report.unreadable],
    }.items():
        if names:
            lines.append(f"{len(names):,} {what}:")
            lines += [f"  {name}" for name in names[:max_names]]
        if len(names) > max_names:
            lines.append(f"  and {len(names) - max_names:,} more (--failures-file FILE writes all)")
    if report.is_complete:
        lines.append("nothing is missing or unreadable")
    return lines


def _collect_expected(layout: str, root: str | Path, annotations: str | Path | None) -> ExpectedFiles:
    """What the lists of a set name, looked up below a folder."""
    public = PUBLIC_DATASETS.get(layout)
    if public is None or public.expected_files is None:
        raise StillmotionError(f"there is no data set {layout!r} to check{did_you_mean(layout, verifiable_datasets())}")
    folder = check_exists(Path(root))
    notes = check_exists(Path(annotations)) if annotations is not None else None
    if notes is None and public.marker_file:
        place = find_annotations(folder, {layout: public})
        if place is None:
            raise StillmotionError(
                f"{folder}: no lists of {layout} in it or beside it; give their folder by --annotations"
            )
        notes = place[1]
    found = ExpectedFiles(folder, public.official_counts)
    public.expected_files(found, notes or folder)
    if not found.videos:
        raise StillmotionError(
            f"{notes or folder}: no list of {layout}'s videos there; give their folder by --annotations"
        )
    return found


def _read_all(items: Sequence[ExpectedVideo], num_workers: int) -> Iterator[tuple[ExpectedVideo, str]]:
    """What is wrong with each, as it is read."""
    if num_workers == 1:
        yield from ((item, _read_fault(item)) for item in items)
        return
    with closing(run_in_processes(_read_fault, items, num_workers)) as results:
        for item, fault in results:
            yield item, f"{item.name}: {fault}" if isinstance(fault, WorkerDied) else fault


def _read_fault(item: ExpectedVideo) -> str:
    """Why a video, or what belongs to it, cannot be read; empty where it can."""
    assert item.path is not None
    try:
        if item.path.suffix == ".npy":
            _read_features(item.path)
        else:
            open_video(item.path).get_frames([0])
        if item.companion_file is not None and item.companion_file.exists():
            _read_companion(item.companion_file)
    except StillmotionError as error:
        return str(error)
    return item.known_fault


def _read_features(file: Path) -> None:
    try:
        np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise VideoError(f"{file}: cannot be read as features ({error})") from None


def _read_companion(file: Path) -> None:
    if file.suffix == ".png":
        read_mask(file)
    elif file.suffix == ".mat":
        read_jhmdb_joints(file)
    elif not file.read_text(errors="replace").strip():
        raise VideoError(f"{file}: no frame labels")
