"""The manifest of a copied data set: a line of JSON for each video, by which a later call knows what it need not make.

Lines are added as videos are done; ranks but the first have files of their own, in the folder manifest.parts, until all
are done. What is torn or changed in it is not believed, and its video is made again.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any, get_origin

from stillmotion import files

MANIFEST = "manifest.jsonl"
PARTS = "manifest.parts"


@dataclass(frozen=True)
class Copied:
    """A line of the manifest: what became of one video, and how. `error` is empty where it went well.

    partly: what is missing of a video that can be read in part only, in words. size: of the copy, in bytes.
    """

    source: str
    path: str
    frames: int = 0
    fps: float = 0.0
    width: int = 0
    height: int = 0
    seconds: float = 0.0
    error: str = ""
    partly: str = ""
    size: int = 0
    made: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(vars(self)) + "\n"


def read_manifest(out: Path) -> list[Copied]:
    """The lines of whole copies, which are there as they were written."""
    return [line for line in read_lines(out) if not line.error and line.size == size_of(out / line.path) > 0]


def read_lines(out: Path) -> list[Copied]:
    """All lines, whatever has become of the copies; those of ranks but the first after the others."""
    found: list[Copied] = []
    for file in (out / MANIFEST, *sorted((out / PARTS).glob("*.jsonl"))):
        if file.exists():
            with file.open(encoding="ascii", errors="replace") as texts:
                found += [line for line in map(_line, texts) if line is not None]
    return found


def write_manifest(out: Path, lines: Iterable[Copied]) -> None:
    """All lines anew in one file, whole or not at all."""
    files.write_text(out / MANIFEST, "".join(line.text() for line in lines))
    with files.writing(out / PARTS):
        files.remove(out / PARTS)


def size_of(path: Path) -> int:
    """Of a file, or of all files in a folder, in bytes; 0 where nothing is there."""
    try:
        if not os.path.isdir(path):
            return os.lstat(path).st_size
        with os.scandir(path) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except (OSError, ValueError):
        return 0


def _line(text: str) -> Copied | None:
    """None of what no call wrote: a line cut short by a kill, other fields, values of other kinds, other places."""
    try:
        line = Copied(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = {each.name: get_origin(each.type) or each.type for each in fields(line)}
    if any(type(getattr(line, name)) is not kind for name, kind in kinds.items()):
        return None
    place = PurePath(line.path)
    return None if place.is_absolute() or ".." in place.parts else line
