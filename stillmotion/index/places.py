"""Where an index lies: by default in the user's cache, never beside the videos."""

import hashlib
import os
import re
from pathlib import Path

_REMOTE = re.compile(r"[a-z][a-z0-9+.-]+://")


def cache_home() -> Path:
    """The folder for what can be made again: $XDG_CACHE_HOME/stillmotion, or ~/.cache/stillmotion."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stillmotion"


def default_place(videos: str | Path) -> Path:
    """Where the index of a folder of videos lies unless another place is given."""
    folder = Path(os.path.realpath(os.path.expanduser(videos)))
    name = re.sub(r"[^\w.-]+", "-", os.fsencode(folder.name).decode("ascii", "replace"))[:60]
    return cache_home() / f"{name or 'root'}-{hashlib.blake2b(os.fsencode(folder), digest_size=4).hexdigest()}"


def is_remote(place: str | Path) -> bool:
    """Whether a place is an address of LanceDB's, such as s3://bucket/index, and no folder."""
    return _REMOTE.match(str(place)) is not None


def address(place: str | Path) -> str:
    """What LanceDB is given: an address as it is, a folder in full."""
    return str(place) if is_remote(place) else os.path.realpath(os.path.expanduser(place))
