"""manifest.jsonl: one JSON line for each transcoded video, by which a later call knows what is complete.

Lines are appended as videos are done. Ranks but the first write files of their own, in the folder manifest.ranks, until
all are done. Each line ends with its hash: a damaged or changed line is ignored, and its video is transcoded again. A
line also has the hash of the copy, and size, time and fingerprint of the original, by which a replaced one is known.
"""

import json
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any, NamedTuple, get_origin

from stillmotion.utils import files
from stillmotion.utils.files import path_size
from stillmotion.utils.hashing import file_fingerprint, hash_bytes, hash_path

logger = logging.getLogger(__name__)

MANIFEST_FILE = "manifest.jsonl"
RANK_MANIFESTS_DIR = "manifest.ranks"
_LINE_HASH = "line_hash"


class SourceState(NamedTuple):
    """Size and modification time, in nanoseconds, of an original file or of the files of a folder; 0 if unknown."""

    num_bytes: int
    mtime_ns: int


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
        hash: `hash_path` of the copy.
        source_bytes: Size of the original; 0 if it is not a file or folder.
        source_mtime_ns: Modification time of the original.
        source_fingerprint: `file_fingerprint` of the original.
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
    hash: str = ""
    source_bytes: int = 0
    source_mtime_ns: int = 0
    source_fingerprint: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json_line(self) -> str:
        """The entry as a line of JSON, with the hash of the line."""
        return json.dumps({**vars(self), _LINE_HASH: _hash_fields(vars(self))}) + "\n"

    def is_copy_of(self, source: str) -> bool:
        """Whether the copy is that of an original, which may have moved but not changed.

        Args:
            source: Name of the original.
        """
        if PurePath(self.source).name != PurePath(source).name:
            return False
        state = read_source_state(source)
        if state in (SourceState(0, 0), SourceState(self.source_bytes, self.source_mtime_ns)):
            return True
        return state.num_bytes == self.source_bytes and file_fingerprint(source) == self.source_fingerprint


def read_source_state(source: str) -> SourceState:
    """Read the state of an original by which a replaced one is known.

    Args:
        source: Path of a video or folder of frames; the state of anything else is unknown.
    """
    try:
        if not os.path.isdir(source):
            status = os.stat(source)
            return SourceState(status.st_size, status.st_mtime_ns)
        with os.scandir(source) as entries:
            states = [entry.stat() for entry in entries]
        return SourceState(sum(state.st_size for state in states), max((s.st_mtime_ns for s in states), default=0))
    except (OSError, ValueError):
        return SourceState(0, 0)


def read_completed_entries(output_dir: Path, *, check_hash: bool = True) -> list[ManifestEntry]:
    """Read the entries of complete copies, whose files have the recorded size and hash.

    Args:
        output_dir: Folder of the copies.
        check_hash: Read all copies and compare their hashes. Otherwise only the sizes are compared.
    """
    completed = []
    for entry in {entry.path: entry for entry in read_entries(output_dir)}.values():
        path = output_dir / entry.path
        if entry.error or not entry.num_bytes == path_size(path) > 0:
            continue
        damage = find_copy_damage(path, entry.hash) if check_hash else ""
        if damage:
            logger.warning("%s It is made again.", damage)
        else:
            completed.append(entry)
    return completed


def find_copy_damage(path: Path, expected_hash: str) -> str:
    """Compare a copy with the hash in the manifest.

    Args:
        path: The copy.
        expected_hash: Its hash in the manifest.

    Returns:
        What is wrong with it; empty if it is as it was written.
    """
    try:
        is_intact = hash_path(path) == expected_hash
    except OSError as error:
        return f"{path}: {(error.strerror or 'cannot be read').lower()}."
    return "" if is_intact else f"{path}: checksum mismatch with {MANIFEST_FILE}; the copy is damaged."


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


def _hash_fields(content: dict[str, Any]) -> str:
    return hash_bytes(json.dumps(content).encode(), digest_size=8)


def _parse_entry(line: str) -> ManifestEntry | None:
    """None for a line that was cut off or changed, has other fields or types, or a path out of the folder."""
    try:
        content = json.loads(line)
        if content.pop(_LINE_HASH) != _hash_fields(content):
            return None
        entry = ManifestEntry(**content)
    except (ValueError, TypeError, RecursionError, AttributeError, KeyError):
        return None
    types = {each.name: get_origin(each.type) or each.type for each in fields(entry)}
    if any(type(getattr(entry, name)) is not expected for name, expected in types.items()):
        return None
    path = PurePath(entry.path)
    return None if path.is_absolute() or ".." in path.parts else entry
