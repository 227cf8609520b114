"""The manifest of a copied data set: a line of JSON for each video, by which a later call knows what it need not make.

Lines are added as videos are done; ranks but the first have files of their own, in the folder manifest.parts, until all
are done. What is torn or changed in it is not believed, and its video is made again."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any, get_origin

from stillmotion.utils import files
from stillmotion.utils.files import path_size

MANIFEST_FILE = "manifest.jsonl"
RANK_MANIFESTS_DIR = "manifest.ranks"


@dataclass(frozen=True)
class ManifestEntry:
    """A line of the manifest: what became of one video, and how. `error` is empty where it went well.

    truncation: what is missing of a video that can be read in part only, in words. size: of the copy, in bytes.
    """

    source: str
    path: str
    num_frames: int = 0
    fps: float = 0.0
    width: int = 0
    height: int = 0
    elapsed_seconds: float = 0.0
    error: str = ""
    truncation: str = ""
    num_bytes: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json_line(self) -> str:
        return json.dumps(vars(self)) + "\n"


def read_completed_entries(output_dir: Path) -> list[ManifestEntry]:
    """The lines of whole copies, which are there as they were written."""
    return [
        line
        for line in read_entries(output_dir)
        if not line.error and line.num_bytes == path_size(output_dir / line.path) > 0
    ]


def read_entries(output_dir: Path) -> list[ManifestEntry]:
    """All lines, whatever has become of the copies; those of ranks but the first after the others."""
    found: list[ManifestEntry] = []
    for file in (output_dir / MANIFEST_FILE, *sorted((output_dir / RANK_MANIFESTS_DIR).glob("*.jsonl"))):
        if file.exists():
            with file.open(encoding="ascii", errors="replace") as texts:
                found += [line for line in map(_parse_entry, texts) if line is not None]
    return found


def write_entries(output_dir: Path, entries: Iterable[ManifestEntry]) -> None:
    """All lines anew in one file, whole or not at all."""
    files.write_text(output_dir / MANIFEST_FILE, "".join(line.to_json_line() for line in entries))
    with files.report_disk_errors(output_dir / RANK_MANIFESTS_DIR):
        files.remove_path(output_dir / RANK_MANIFESTS_DIR)


def _parse_entry(text: str) -> ManifestEntry | None:
    """None of what no call wrote: a line cut short by a kill, other fields, values of other kinds, other places."""
    try:
        line = ManifestEntry(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    kinds = {each.name: get_origin(each.type) or each.type for each in fields(line)}
    if any(type(getattr(line, name)) is not kind for name, kind in kinds.items()):
        return None
    place = PurePath(line.path)
    return None if place.is_absolute() or ".." in place.parts else line
