"""Files that LanceDB writes without checksums: hashes of its search indexes, and its messages about damaged files."""

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from stillmotion.errors import StillmotionError
from stillmotion.index.locations import is_remote_uri
from stillmotion.utils.files import read_json, write_json
from stillmotion.utils.hashing import hash_path

HASH_FILE = "search_index_hashes.json"
_STDERR = 2
_capture_lock = threading.RLock()  # stderr is that of all threads


def store_search_index_hashes(uri: str) -> None:
    """Store the hashes of the search indexes of the segments; nothing is stored at remote addresses.

    Args:
        uri: Folder or LanceDB URI.
    """
    if hashes := {folder.name: hash_path(folder) for folder in _search_indexes(uri)}:
        write_json(Path(uri, HASH_FILE), hashes)


def verify_search_indexes(uri: str) -> None:
    """Compare the search indexes of the segments with their stored hashes, if they have one.

    They have none while `index` is about to store them, or if it was killed then.

    Args:
        uri: Folder or LanceDB URI.

    Raises:
        StillmotionError: If one is not as it was written.
    """
    folders, file, hint = _search_indexes(uri), Path(uri, HASH_FILE), "delete the index and index again"
    hashes = dict(read_json(file, hint=hint)) if folders and file.exists() else {}
    for folder in folders:
        if folder.name in hashes and hash_path(folder) != hashes[folder.name]:
            raise StillmotionError(f"{uri} is damaged: {folder} does not match its hash in {HASH_FILE}; {hint}")


def _search_indexes(uri: str) -> list[Path]:
    folder = Path(uri, "segments.lance", "_indices")
    return sorted(folder.iterdir()) if not is_remote_uri(uri) and folder.is_dir() else []


@contextlib.contextmanager
def hide_panic_message() -> Iterator[None]:
    """Leave out what the Rust library prints when it panics inside the context; that is raised as an error, too."""
    with _capture_lock, contextlib.ExitStack() as stack:
        try:
            captured = stack.enter_context(tempfile.TemporaryFile())
            stderr = os.dup(_STDERR)
        except OSError:  # no stderr, or no space for a temporary file
            yield
            return
        os.dup2(captured.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(stderr, _STDERR)
            os.close(stderr)
            captured.seek(0)
            printed = captured.read()
            if printed and b"panicked at" not in printed:
                os.write(_STDERR, printed)
