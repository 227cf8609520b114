"""`stillmotion data check`: whether a folder holds a published data set, whole and readable."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stillmotion.data.contents import Contents, Item
from stillmotion.data.dense import read_joints, read_mask
from stillmotion.data.layouts import existing
from stillmotion.data.public import PUBLIC, checkable, find_lists
from stillmotion.data.video import open_video
from stillmotion.data.workers import Died, in_processes
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.files import write_text
from stillmotion.registry import suggestion

_SHOWN = 20


@dataclass(frozen=True)
class Checked:
    """What was found of a set.

    listed, present: videos that the lists name, and those of them that are there.
    classes: names of all classes, and absent those of which no video is there.
    missing: videos of other classes, and files that belong to a video. unreadable: names with the reason.
    notes: about the lists themselves.
    """

    set: str
    root: str
    listed: int
    present: int
    classes: list[str]
    absent: list[str]
    missing: list[str]
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Nothing is missing or unreadable."""
        return not (self.absent or self.missing or self.unreadable)

    def write(self, file: str | Path) -> None:
        """Write the names of all that is missing or unreadable, one a line."""
        names = [*self.absent, *self.missing, *(name for name, _ in self.unreadable)]
        write_text(file, "".join(f"{name}\n" for name in names), option="--list")


def check(
    layout: str,
    root: str | Path,
    *,
    annotations: str | Path | None = None,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Checked:
    """Look for every video that a set's lists name, and read a frame of each, with what belongs to it.

    layout: one of `checkable()`.
    annotations: the folder (or file) of the lists, where they are not in the folder or beside it.
    workers: processes that read.
    """
    if workers < 1:
        raise StillmotionError(f"workers is {workers}; it must be at least 1")
    found = _contents(layout, root, annotations)
    items = list(found.items.values())
    groups: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        groups[item.group].append(item)
    absent = sorted(name for name, some in groups.items() if name and all(item.path is None for item in some))
    gone = set(absent)
    missing = [item.name for item in items if item.path is None and item.group not in gone]
    there = [item for item in items if item.path is not None]
    missing += [str(item.beside) for item in there if item.beside is not None and not item.beside.exists()]
    faults = {}
    for number, (item, fault) in enumerate(_faults(there, workers)):
        faults[item] = fault
        if progress is not None:
            progress(number + 1, len(there))
    unreadable = [(item.name, faults[item]) for item in there if faults[item]]
    classes = sorted(name for name in groups if name)
    return Checked(layout, str(root), len(items), len(there), classes, absent, missing, unreadable, found.notes)


def check_lines(found: Checked, *, shown: int = _SHOWN) -> list[str]:
    """What was found, as lines for a terminal; of missing and unreadable videos, so many are named."""
    lines = [f"{found.set} in {found.root}: {found.present:,} of {found.listed:,} listed videos are there"]
    lines += found.notes
    if found.absent:
        lines.append(f"{len(found.absent)} of {len(found.classes)} classes are missing:")
        lines += [f"  {name}" for name in found.absent]
    for what, names in {
        "missing": found.missing,
        "unreadable": [reason for _, reason in found.unreadable],
    }.items():
        if names:
            lines.append(f"{len(names):,} {what}:")
            lines += [f"  {name}" for name in names[:shown]]
        if len(names) > shown:
            lines.append(f"  and {len(names) - shown:,} more (--list FILE writes all)")
    if found.whole:
        lines.append("nothing is missing or unreadable")
    return lines


def _contents(layout: str, root: str | Path, annotations: str | Path | None) -> Contents:
    """What the lists of a set name, looked up below a folder."""
    public = PUBLIC.get(layout)
    if public is None or public.contents is None:
        raise StillmotionError(f"there is no data set {layout!r} to check{suggestion(layout, checkable())}")
    folder = existing(Path(root))
    notes = existing(Path(annotations)) if annotations is not None else None
    if notes is None and public.mark:
        place = find_lists(folder, {layout: public})
        if place is None:
            raise StillmotionError(
                f"{folder}: no lists of {layout} in it or beside it; give their folder by --annotations"
            )
        notes = place[1]
    found = Contents(folder, public.official)
    public.contents(found, notes or folder)
    if not found.items:
        raise StillmotionError(
            f"{notes or folder}: no list of {layout}'s videos there; give their folder by --annotations"
        )
    return found


def _faults(items: Sequence[Item], workers: int) -> Iterator[tuple[Item, str]]:
    """What is wrong with each, as it is read."""
    if workers == 1:
        yield from ((item, _fault(item)) for item in items)
        return
    with closing(in_processes(_fault, items, workers)) as results:
        for item, fault in results:
            yield item, f"{item.name}: {fault}" if isinstance(fault, Died) else fault


def _fault(item: Item) -> str:
    """Why a video, or what belongs to it, cannot be read; empty where it can."""
    assert item.path is not None
    try:
        if item.path.suffix == ".npy":
            _read_features(item.path)
        else:
            open_video(item.path).frames([0])
        if item.beside is not None and item.beside.exists():
            _read_beside(item.beside)
    except StillmotionError as error:
        return str(error)
    return item.fault


def _read_features(file: Path) -> None:
    try:
        np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise VideoError(f"{file}: cannot be read as features ({error})") from None


def _read_beside(file: Path) -> None:
    if file.suffix == ".png":
        read_mask(file)
    elif file.suffix == ".mat":
        read_joints(file)
    elif not file.read_text(errors="replace").strip():
        raise VideoError(f"{file}: no frame labels")
