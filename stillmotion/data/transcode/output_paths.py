"""Unique output paths of the copies, as in the original data set; none leads out of the output folder."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path, PurePath

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.errors import StillmotionError

_MAX_NAME_BYTES = 255  # of a file name


def output_paths(dataset: VideoDataset, suffix: str, *, reserved: Iterable[str] = ()) -> list[str]:
    """Unique output path of each video: its path relative to the root of the data set, with another suffix.

    Args:
        dataset: Videos to copy.
        suffix: Suffix of the copies; empty for folders.
        reserved: Paths that no copy may have.

    Returns:
        Paths relative to the output folder; none is the folder of another.
    """
    names = [_relative_path(dataset, index) for index in range(len(dataset))]
    taken = {*reserved, *(str(folder) for name in names for folder in name.parents)}
    paths = []
    for index, name in enumerate(names):
        # Two sources that differ only in their suffix keep it.
        stem = name.with_suffix("")
        numbered = (f"{stem}_{number}{suffix}" for number in count(index))
        candidates = chain((f"{stem}{suffix}", f"{name}{suffix}"), numbered)
        path = next(path for path in map(_shorten_name, candidates) if path not in taken)
        taken.add(path)
        paths.append(path)
    return paths


def check_no_links_outside(output_dir: Path, paths: Sequence[str]) -> None:
    """Check that no symbolic link in the output folder leads a copy elsewhere.

    Args:
        output_dir: Output folder.
        paths: Paths of the copies in it.

    Raises:
        StillmotionError: A link points outside.
    """
    root = Path(os.path.realpath(output_dir))
    for folder in {str(PurePath(path).parent) for path in paths}:
        target = Path(os.path.realpath(output_dir / folder))
        if not target.is_relative_to(root):
            raise StillmotionError(
                f"{output_dir / folder} is a symbolic link that points outside {output_dir}, to {target}. "
                "Remove it or choose another --out."
            )


def _relative_path(dataset: VideoDataset, index: int) -> PurePath:
    """Path of a video relative to the root of the data set; elsewhere its path without ".." and "/"."""
    given = PurePath(dataset.name(index))
    name = given.relative_to(dataset.root) if dataset.root is not None and given.is_relative_to(dataset.root) else given
    parts = [part for part in name.parts if part not in ("..", name.anchor)]
    # If the root is itself the video, only its name is left.
    return PurePath(*parts) if parts else PurePath(Path(os.path.realpath(given)).name or f"video_{index}")


def _shorten_name(path: str) -> str:
    """The path with a file name of valid length; a hash of the whole name replaces what is cut off."""
    full = PurePath(path)
    name = os.fsencode(full.name)
    if len(name) <= _MAX_NAME_BYTES:
        return path
    ending = f"-{hashlib.sha256(name).hexdigest()[:12]}{full.suffix if len(full.suffix) < 8 else ''}"
    beginning = name[: _MAX_NAME_BYTES - len(os.fsencode(ending))].decode("utf-8", "ignore")
    return str(full.with_name(beginning + ending))
