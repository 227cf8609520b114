"""Files that are written whole or not at all, folders that have one writer, and originals that are never written to."""

import contextlib
import errno
import fcntl
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from stillmotion.errors import StillmotionError
from stillmotion.utils.files import _host_id, ensure_dir, remove_path, report_disk_errors

LOCK_FILE = ".lock"
_TEMP_FILE = re.compile(r"\.(\d+)-\d+(?:-([0-9a-f]{8}))?\.part")


@contextlib.contextmanager
def lock_dir(directory: str | Path, *, option_name: str = "--out") -> Iterator[None]:
    """Hold a folder as its one writer; an error that says who holds it where another process does.

    The lock ends with the process, however that ends.
    """
    place = ensure_dir(directory, option_name=option_name)
    with report_disk_errors(place / LOCK_FILE, option_name=option_name):
        handle = open(place / LOCK_FILE, "a+")  # it stays open as long as it is held
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN):
                yield  # a file system without locks
                return
            handle.seek(0)
            who = handle.read().strip() or "another process"
            raise StillmotionError(
                f"{place} is being written by {who}; wait for it, or choose another {option_name}"
            ) from None
        handle.truncate(0)
        with report_disk_errors(
            place / LOCK_FILE, option_name=option_name
        ):  # past the buffer, which would be written once more on closing
            os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        remove_stale_temp_files(place, include_other_hosts=True)
        try:
            yield
        finally:
            handle.truncate(0)


def lock_holder(directory: str | Path) -> str | None:
    """Who holds a folder, in words; None where no one does. To ask takes no hold of it.

    A process of another machine is believed as long as the lock says so.
    """
    try:
        who = (Path(directory) / LOCK_FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    pid, _, machine = who.removeprefix("process ").partition(" on ")
    ended = machine == socket.gethostname() and not _is_process_alive(pid)
    return None if ended else who or None


def remove_stale_temp_files(directory: str | Path, *, include_other_hosts: bool = False) -> None:
    """Remove what killed writers of this machine left unfinished in a folder, though not below it.

    include_other_hosts: and what is there of other machines, none of which writes to the folder now.
    """
    for partial in Path(directory).glob(".*-*.part*"):
        if not (name := _TEMP_FILE.match(partial.name)):
            continue
        pid, machine = name.groups()
        here = machine in (None, _host_id())
        if (here and not _is_process_alive(pid) and Path("/proc/self").exists()) or (include_other_hosts and not here):
            with contextlib.suppress(OSError):
                remove_path(partial)


def _is_process_alive(pid: str) -> bool:
    """Whether a process works; a dead one stays in the table until its parent has heard of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
