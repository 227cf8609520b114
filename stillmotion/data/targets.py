"""Where the copies of a data set go: as in the original, below one folder, which nothing leads out of."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from itertools import chain, count
from pathlib import Path, PurePath

from stillmotion.data.paths import VideoSet
from stillmotion.errors import StillmotionError

_LONGEST = 255  # bytes that a name may have


def target_paths(data: VideoSet, suffix: str, *, reserved: Iterable[str] = ()) -> list[str]:
    """Where each video goes, relative to the copy's root: as in the original's, with another suffix; unique.

    reserved: what must stay free. No video goes where another one's folder is.
    """
    names = [_name(data, index) for index in range(len(data))]
    taken = {*reserved, *(str(folder) for name in names for folder in name.parents)}
    paths = []
    for index, name in enumerate(names):
        # Two sources that differ only in their suffix keep it.
        stem = name.with_suffix("")
        numbered = (f"{stem}_{number}{suffix}" for number in count(index))
        choices = chain((f"{stem}{suffix}", f"{name}{suffix}"), numbered)
        path = next(path for path in map(_short, choices) if path not in taken)
        taken.add(path)
        paths.append(path)
    return paths


def check_inside(out: Path, paths: Sequence[str]) -> None:
    """Raises where a link below `out` would lead a copy elsewhere."""
    root = Path(os.path.realpath(out))
    for folder in {str(PurePath(path).parent) for path in paths}:
        real = Path(os.path.realpath(out / folder))
        if not real.is_relative_to(root):
            raise StillmotionError(
                f"{out / folder} is a link that leads out of {out}, to {real}; remove it or choose another --out"
            )


def _name(data: VideoSet, index: int) -> PurePath:
    """The path of a video below the set's root, or what is left of it without the way there."""
    given, root = PurePath(data.name(index)), getattr(data, "root", None)
    name = given.relative_to(root) if root is not None and given.is_relative_to(root) else given
    parts = [part for part in name.parts if part not in ("..", name.anchor)]
    # A root that is itself the video has only its own name.
    return PurePath(*parts) if parts else PurePath(Path(os.path.realpath(given)).name or f"video_{index}")


def _short(path: str) -> str:
    """The path with a name that a file may have; what is cut off a longer one is told by a digest of the whole."""
    place = PurePath(path)
    name = os.fsencode(place.name)
    if len(name) <= _LONGEST:
        return path
    ending = f"-{hashlib.sha256(name).hexdigest()[:12]}{place.suffix if len(place.suffix) < 8 else ''}"
    kept = name[: _LONGEST - len(os.fsencode(ending))].decode("utf-8", "ignore")
    return str(place.with_name(kept + ending))
