"""Locks of output folders, which have one writer, and removal of temporary files of killed writers."""

import contextlib
import errno
import fcntl
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from stillmotion.errors import StillmotionError
from stillmotion.utils.files import _host_id, ensure_dir, remove_path, report_disk_errors

LOCK_FILE = ".lock"
_LOCKED = (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN)
_NAMELESS_SECONDS = 2.0  # in which the holder of a lock writes its name, or releases the lock
_TEMP_NAME = re.compile(r"stillmotion-[a-z]+-(\d+)-([0-9a-f]{8})-")
_TEMP_FILE = re.compile(r"\.(\d+)-\d+(?:-([0-9a-f]{8}))?\.part")


@contextlib.contextmanager
def lock_dir(directory: str | Path, *, option_name: str = "--out") -> Iterator[None]:
    """Lock a folder for writing. The lock ends with the process, however that ends.

    Args:
        directory: The folder; made if it does not exist.
        option_name: Command-line option that chooses another folder, for error messages.

    Raises:
        StillmotionError: Another process has locked it; the message says which.
    """
    path = ensure_dir(directory, option_name=option_name)
    with report_disk_errors(path / LOCK_FILE, option_name=option_name):
        handle = open(path / LOCK_FILE, "a+")  # noqa: SIM115 (open as long as the folder is locked)
    with handle:
        try:
            holder = _wait_for_lock(handle)
        except OSError:
            yield  # a file system without locks
            return
        if holder is not None:
            raise StillmotionError(f"{path} is being written by {holder}; wait for it, or choose another {option_name}")
        handle.truncate(0)
        with report_disk_errors(path / LOCK_FILE, option_name=option_name):
            # Not through the buffer of the file, which would be written again on closing.
            os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        remove_stale_temp_files(path, include_other_hosts=True)
        try:
            yield
        finally:
            handle.truncate(0)


def _wait_for_lock(handle: IO[str]) -> str | None:
    """Lock a file; returns who has locked it instead, in words.

    A file without a name is locked for a moment only: its holder is about to write the name, or to release the lock.
    """
    deadline = time.monotonic() + _NAMELESS_SECONDS
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except OSError as error:
            if error.errno not in _LOCKED:
                raise
        handle.seek(0)
        if holder := handle.read().strip():
            return holder
        if time.monotonic() > deadline:
            return "another process"
        time.sleep(0.01)


def lock_holder(directory: str | Path) -> str | None:
    """Which process has locked a folder, in words; None if it is not locked.

    A process of another machine counts as long as the lock file names it.

    Args:
        directory: The folder.
    """
    try:
        who = (Path(directory) / LOCK_FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    pid, _, machine = who.removeprefix("process ").partition(" on ")
    ended = machine == socket.gethostname() and not _is_process_alive(pid)
    return None if ended else who or None


def is_lock_free(directory: str | Path) -> bool:
    """Whether no process holds the lock of a folder, as far as its file system tells; some have no locks.

    Args:
        directory: The folder.
    """
    try:
        with open(Path(directory) / LOCK_FILE) as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _LOCKED
    return True


def remove_stale_temp_files(directory: str | Path, *, include_other_hosts: bool = False) -> None:
    """Remove temporary files that killed writers left in a folder (not below it).

    Args:
        directory: The folder.
        include_other_hosts: Remove those of other machines, too; none of these may be writing to the folder.
    """
    for partial in Path(directory).glob(".*-*.part*"):
        if not (name := _TEMP_FILE.match(partial.name)):
            continue
        pid, host = name.groups()
        is_local = host in (None, _host_id())
        is_stale = is_local and not _is_process_alive(pid) and Path("/proc/self").exists()
        if is_stale or (include_other_hosts and not is_local):
            with contextlib.suppress(OSError):
                remove_path(partial)


def temp_prefix(kind: str) -> str:
    """Return a prefix for a name in the temporary folder, by which `sweep_temp_dir` knows the process that made it.

    Args:
        kind: What it is for, one word.
    """
    return f"stillmotion-{kind}-{os.getpid()}-{_host_id()}-"


def sweep_temp_dir() -> None:
    """Remove what killed processes of this machine have left in the temporary folder."""
    for path in Path(tempfile.gettempdir()).glob("stillmotion-*"):
        name = _TEMP_NAME.match(path.name)
        if name and name[2] == _host_id() and not _is_process_alive(name[1]) and Path("/proc/self").exists():
            with contextlib.suppress(OSError):  # it may be another user's
                remove_path(path)


def _is_process_alive(pid: str) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
