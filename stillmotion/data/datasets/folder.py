"""What every data set is made of: the protocol, a set of paths, and the search and the lists they come from."""

import os
from collections.abc import Iterator
from pathlib import Path

from stillmotion.data.datasets.base import UNKNOWN_LABEL, PathDataset
from stillmotion.data.datasets.csv_list import split_aliases
from stillmotion.data.video import VIDEO_SUFFIXES
from stillmotion.data.video.frame_folder import IMAGE_SUFFIXES
from stillmotion.errors import StillmotionError
from stillmotion.utils.files import GENERATED_MARKER


def walk_folders(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """The folders below root with the names of folders and files in them, sorted; to clear the former enters none.

    Hidden names are passed over, and so is a folder that a verb filled, unless it is the root itself. Links are
    followed, and no folder is entered twice.
    """
    entered: set[tuple[int, int]] = set()

    def is_new(folder: str | Path) -> bool:
        try:
            found = os.stat(folder)
        except OSError:
            return False
        known = (found.st_dev, found.st_ino) in entered
        entered.add((found.st_dev, found.st_ino))
        return not known

    is_new(root)
    for folder, folders, names in os.walk(root, followlinks=True):
        if GENERATED_MARKER in names and folder != os.fspath(root):
            folders.clear()
            continue
        folders[:] = sorted(n for n in folders if not n.startswith(".") and is_new(os.path.join(folder, n)))
        yield Path(folder), folders, sorted(name for name in names if not name.startswith("."))


def find_videos(root: Path) -> Iterator[Path]:
    """Video files and folders of frames below root, in sorted order; what `walk` passes over is none."""
    for folder, folders, files in walk_folders(root):
        videos = [name for name in files if Path(name).suffix.lower() in VIDEO_SUFFIXES]
        yield from (folder / name for name in videos)
        if not videos and not folders and any(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in files):
            yield folder


class VideoFolder(PathDataset):
    """All videos below a folder; a first level of sub-folders names the classes, as in class/video.mp4.

    A folder of jpg/png frames is a video too. Videos directly in the root have no class.
    """

    def __init__(self, root: str | Path) -> None:
        root = Path(root)
        paths = list(find_videos(root))
        if not paths:
            looked = " ".join(VIDEO_SUFFIXES)
            own = next(
                (
                    f"; {mark.parent} is stillmotion's own: name it itself"
                    for mark in root.glob(f"*/{GENERATED_MARKER}")
                ),
                "",
            )
            raise StillmotionError(
                f"{root}: no video found (looked for {looked} and folders of {' '.join(IMAGE_SUFFIXES)}){own}"
            )
        parts = [path.relative_to(root).parts for path in paths]
        classes = sorted({part[0] for part in parts if len(part) > 1})
        number = {name: i for i, name in enumerate(classes)}
        labels = [number[part[0]] if len(part) > 1 else UNKNOWN_LABEL for part in parts]
        super().__init__(paths, labels=labels if classes else None, classes=classes, root=root)


def open_folder_dataset(path: Path, *, split: str | None = None) -> PathDataset:
    """The videos below a folder, or those below its sub-folder of a split's name; of a video file, that one."""
    if path.is_file():
        return PathDataset([path], root=path.parent)
    if split is None:
        return VideoFolder(path)
    for name in split_aliases(split):
        if (path / name).is_dir():
            return VideoFolder(path / name)
    raise StillmotionError(f"{path}: no sub-folder {split!r} and no labels.csv to take the split from; leave it out")
