"""Find videos below a folder; `VideoFolder` (class/video.mp4)."""

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
    """Walk the folders below a folder, like os.walk but in sorted order.

    Hidden names are skipped, and so are folders written by stillmotion, unless it is the root itself. Links are
    followed, and no folder is entered twice.

    Args:
        root: The folder.

    Yields:
        A folder, and the names of the folders and of the files in it. Names removed from the former are not entered.
    """
    entered: set[tuple[int, int]] = set()

    def enter(folder: str | Path) -> bool:
        try:
            status = os.stat(folder)
        except OSError:
            return False
        key = (status.st_dev, status.st_ino)
        is_new = key not in entered
        entered.add(key)
        return is_new

    enter(root)
    for folder, folders, names in os.walk(root, followlinks=True):
        if GENERATED_MARKER in names and folder != os.fspath(root):
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith(".") and enter(os.path.join(folder, name)))
        yield Path(folder), folders, sorted(name for name in names if not name.startswith("."))


def find_videos(root: Path) -> Iterator[Path]:
    """Find video files and frame folders below a folder, sorted. Skips what `walk_folders` skips.

    Args:
        root: The folder.
    """
    for folder, folders, files in walk_folders(root):
        videos = [name for name in files if Path(name).suffix.lower() in VIDEO_SUFFIXES]
        yield from (folder / name for name in videos)
        if not videos and not folders and any(Path(name).suffix.lower() in IMAGE_SUFFIXES for name in files):
            yield folder


class VideoFolder(PathDataset):
    """All videos below a folder; the first level of sub-folders names the classes, as in class/video.mp4.

    A folder of jpg or png frames is a video, too. Videos directly in the folder have no class.

    Args:
        root: The folder.

    Raises:
        StillmotionError: There are no videos.
    """

    def __init__(self, root: str | Path) -> None:
        root = Path(root)
        paths = list(find_videos(root))
        if not paths:
            generated = next(root.glob(f"*/{GENERATED_MARKER}"), None)
            hint = (
                f" To read {generated.parent}, which stillmotion wrote, give that folder itself." if generated else ""
            )
            searched = f"{' '.join(VIDEO_SUFFIXES)} and folders of {' '.join(IMAGE_SUFFIXES)}"
            raise StillmotionError(f"{root}: no video found (searched for {searched}).{hint}")
        parts = [path.relative_to(root).parts for path in paths]
        classes = sorted({part[0] for part in parts if len(part) > 1})
        label_by_class = {name: i for i, name in enumerate(classes)}
        labels = [label_by_class[part[0]] if len(part) > 1 else UNKNOWN_LABEL for part in parts]
        super().__init__(paths, labels=labels if classes else None, classes=classes, root=root)


def open_folder_dataset(path: Path, *, split: str | None = None) -> PathDataset:
    """Open the videos below a folder, or a single video file.

    Args:
        path: Folder or video file.
        split: Open only the sub-folder of this name.

    Raises:
        StillmotionError: There are no videos, or no such split.
    """
    if path.is_file():
        return PathDataset([path], root=path.parent)
    if split is None:
        return VideoFolder(path)
    for name in split_aliases(split):
        if (path / name).is_dir():
            return VideoFolder(path / name)
    raise StillmotionError(f"{path}: split {split!r} not found (no such sub-folder and no labels.csv). Omit --split.")
