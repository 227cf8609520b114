"""manifest.jsonl: one JSON line for each transcoded video, by which a later call knows what is complete.

Lines are appended as videos are done. Ranks but the first write files of their own, in the folder manifest.ranks, until
all are done. A damaged or changed line is ignored, and its video is transcoded again.
"""

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
    """A line of the manifest: the copy of one video.

    Attributes:
        source: Name of the original video.
        path: Path of the copy in the output folder.
        num_frames: Number of frames.
        fps: Frame rate.
        width: Width of the copy, in pixels.
        height: Height of the copy, in pixels.
        elapsed_seconds: Time that it took.
        error: Why there is no copy; empty on success.
        truncation: What is missing of a video that can be read only in part.
        num_bytes: Size of the copy.
        settings: How the copy was made.
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
        """The entry as a line of JSON."""
        return json.dumps(vars(self)) + "\n"


def read_completed_entries(output_dir: Path) -> list[ManifestEntry]:
    """Read the entries of complete copies, whose files have the recorded size.

    Args:
        output_dir: Folder of the copies.
    """
    return [
        entry
        for entry in read_entries(output_dir)
        if not entry.error and entry.num_bytes == path_size(output_dir / entry.path) > 0
    ]


def read_entries(output_dir: Path) -> list[ManifestEntry]:
    """Read all valid entries, those of ranks but the first last.

    Args:
        output_dir: Folder of the copies.
    """
    entries: list[ManifestEntry] = []
    for file in (output_dir / MANIFEST_FILE, *sorted((output_dir / RANK_MANIFESTS_DIR).glob("*.jsonl"))):
        if file.exists():
            with file.open(encoding="ascii", errors="replace") as lines:
                entries += [entry for entry in map(_parse_entry, lines) if entry is not None]
    return entries


def write_entries(output_dir: Path, entries: Iterable[ManifestEntry]) -> None:
    """Write the manifest as one file, atomically, and remove the files of the ranks.

    Args:
        output_dir: Folder of the copies.
        entries: All entries.
    """
    files.write_text(output_dir / MANIFEST_FILE, "".join(entry.to_json_line() for entry in entries))
    with files.report_disk_errors(output_dir / RANK_MANIFESTS_DIR):
        files.remove_path(output_dir / RANK_MANIFESTS_DIR)


def _parse_entry(line: str) -> ManifestEntry | None:
    """None for a line that was cut off, has other fields or types, or a path out of the folder."""
    try:
        entry = ManifestEntry(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    types = {each.name: get_origin(each.type) or each.type for each in fields(entry)}
    if any(type(getattr(entry, name)) is not expected for name, expected in types.items()):
        return None
    path = PurePath(entry.path)
    return None if path.is_absolute() or ".." in path.parts else entry
