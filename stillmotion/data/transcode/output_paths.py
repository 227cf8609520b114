"""Where the copies of a data set go: as in the original, below one folder, which nothing leads out of."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path, PurePath

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.errors import StillmotionError

_MAX_NAME_BYTES = 255  # bytes that a name may have


def output_paths(dataset: VideoDataset, suffix: str, *, reserved: Iterable[str] = ()) -> list[str]:
    """Where each video goes, relative to the copy's root: as in the original's, with another suffix; unique.

    reserved: what must stay free. No video goes where another one's folder is.
    """
    names = [_relative_path(dataset, index) for index in range(len(dataset))]
    taken = {*reserved, *(str(folder) for name in names for folder in name.parents)}
    paths = []
    for index, name in enumerate(names):
        # Two sources that differ only in their suffix keep it.
        stem = name.with_suffix("")
        numbered = (f"{stem}_{number}{suffix}" for number in count(index))
        choices = chain((f"{stem}{suffix}", f"{name}{suffix}"), numbered)
        path = next(path for path in map(_shorten_name, choices) if path not in taken)
        taken.add(path)
        paths.append(path)
    return paths


def check_no_links_outside(output_dir: Path, paths: Sequence[str]) -> None:
    """Raises where a link below `output_dir` would lead a copy elsewhere."""
    root = Path(os.path.realpath(output_dir))
    for folder in {str(PurePath(path).parent) for path in paths}:
        real = Path(os.path.realpath(output_dir / folder))
        if not real.is_relative_to(root):
            raise StillmotionError(
                f"{output_dir / folder} is a link that leads out of {output_dir}, to {real}; remove it or choose another --out"
            )


def _relative_path(dataset: VideoDataset, index: int) -> PurePath:
    """The path of a video below the set's root, or what is left of it without the way there."""
    given, root = PurePath(dataset.name(index)), dataset.root
    name = given.relative_to(root) if root is not None and given.is_relative_to(root) else given
    parts = [part for part in name.parts if part not in ("..", name.anchor)]
    # A root that is itself the video has only its own name.
    return PurePath(*parts) if parts else PurePath(Path(os.path.realpath(given)).name or f"video_{index}")


def _shorten_name(path: str) -> str:
    """The path with a name that a file may have; what is cut off a longer one is told by a digest of the whole."""
    place = PurePath(path)
    name = os.fsencode(place.name)
    if len(name) <= _MAX_NAME_BYTES:
        return path
    ending = f"-{hashlib.sha256(name).hexdigest()[:12]}{place.suffix if len(place.suffix) < 8 else ''}"
    kept = name[: _MAX_NAME_BYTES - len(os.fsencode(ending))].decode("utf-8", "ignore")
    return str(place.with_name(kept + ending))
