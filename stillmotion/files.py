"""Files that are written whole or not at all, folders that have one writer, and originals that are never written to."""

import contextlib
import errno
import fcntl
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError

LOCK = ".lock"
MARK = ".stillmotion"  # in folders that a verb filled: their videos are no input, unless they are named themselves
_NUMBERS = itertools.count()
_PARTIAL = re.compile(r"\.(\d+)-\d+(?:-([0-9a-f]{8}))?\.part")
_ENDS, _BLOCKS, _BLOCK = 65536, 16, 4096  # bytes of a file's ends, and blocks between them, that tell it


def write(file: str | Path, do: Callable[[Path], object], *, option: str = "--out") -> None:
    """Have `do` write a file under another name, and give it its own when it is whole and on the disk.

    What cannot be written is one error with the file, the reason and the free space; what was there before stays.
    `do` may make a folder instead, which takes the place of whatever was there; its files are left to the system to
    bring to the disk. option: by which another place is chosen.
    """
    place = Path(file)
    # Short, for long names; no two processes have the same one, on however many machines.
    partial = place.with_name(f".{os.getpid()}-{next(_NUMBERS)}-{_machine()}.part{place.suffix[:16]}")
    try:
        do(partial)
        if partial.is_dir():
            remove(place)
        else:
            with open(partial, "rb+") as written:
                os.fsync(written.fileno())
            os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, place)
    except StillmotionError:
        raise
    except Exception as error:  # writers of tensors and tables raise their own kinds
        if not _is_of_disk(error):
            raise
        raise StillmotionError(
            f"cannot write {place}: {_reason(error, place.parent)}; choose another {option}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            remove(partial)


def remove(path: str | Path) -> None:
    """Remove a file, a link, or a folder with what is in it, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)


def write_text(file: str | Path, text: str, *, option: str = "--out") -> None:
    """Write a text file, whole or not at all; names that are not UTF-8 are written as they are."""
    write(file, lambda partial: partial.write_text(text, encoding="utf-8", errors="surrogateescape"), option=option)


def write_json(file: str | Path, value: Any, *, option: str = "--out") -> None:
    """Write JSON, whole or not at all."""
    write_text(file, json.dumps(value, indent=1) + "\n", option=option)


def read_json(file: str | Path, *, remedy: str) -> Any:
    """What a JSON file holds; one that is torn or damaged is named, with the remedy. A missing one is an OSError."""
    try:
        return json.loads(Path(file).read_text(encoding="utf-8", errors="surrogateescape"))
    except ValueError as error:
        raise StillmotionError(f"{file} is torn or damaged ({error}); {remedy}") from None


def made(folder: str | Path, *, option: str = "--out", mark: bool = False) -> Path:
    """The folder, made where it is not there. mark: its videos are the work of a verb."""
    place = Path(folder)
    with writing(place, option=option):
        place.mkdir(parents=True, exist_ok=True)
        if mark and not (place / MARK).exists():
            (place / MARK).touch()
    return place


def writable(folder: str | Path, *, option: str = "--out") -> None:
    """Raises where `made` could not make a folder or nothing could be written into it; nothing is tried."""
    place = Path(folder).absolute()
    with writing(folder, option=option):
        there = next(path for path in (place, *place.parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextlib.contextmanager
def writing(place: str | Path, *, option: str = "--out") -> Iterator[None]:
    """What the disk refuses meanwhile is one line; option: by which another place is chosen."""
    try:
        yield
    except OSError as error:
        raise StillmotionError(
            f"cannot write to {place}: {_reason(error, Path(place))}; choose another {option}"
        ) from None


@contextlib.contextmanager
def locked(folder: str | Path, *, option: str = "--out") -> Iterator[None]:
    """Hold a folder as its one writer; an error that says who holds it where another process does.

    The lock ends with the process, however that ends.
    """
    place = made(folder, option=option)
    with writing(place / LOCK, option=option):
        handle = open(place / LOCK, "a+")  # noqa: SIM115  # it stays open as long as it is held
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
                f"{place} is being written by {who}; wait for it, or choose another {option}"
            ) from None
        handle.truncate(0)
        with writing(place / LOCK, option=option):  # past the buffer, which would be written once more on closing
            os.write(handle.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
        sweep(place, others=True)
        try:
            yield
        finally:
            handle.truncate(0)


def holder(folder: str | Path) -> str | None:
    """Who holds a folder, in words; None where no one does. To ask takes no hold of it.

    A process of another machine is believed as long as the lock says so.
    """
    try:
        who = (Path(folder) / LOCK).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    pid, _, machine = who.removeprefix("process ").partition(" on ")
    ended = machine == socket.gethostname() and not _lives(pid)
    return None if ended else who or None


def sweep(folder: str | Path, *, others: bool = False) -> None:
    """Remove what killed writers of this machine left unfinished in a folder, though not below it.

    others: and what is there of other machines, none of which writes to the folder now.
    """
    for partial in Path(folder).glob(".*-*.part*"):
        if not (name := _PARTIAL.match(partial.name)):
            continue
        pid, machine = name.groups()
        here = machine in (None, _machine())
        if (here and not _lives(pid) and Path("/proc/self").exists()) or (others and not here):
            with contextlib.suppress(OSError):
                remove(partial)


@functools.cache
def _machine() -> str:
    """Tells this machine, and the container on it, from others whose processes have the same numbers."""
    numbers = "/proc/self/ns/pid"
    space = os.readlink(numbers) if os.path.lexists(numbers) else ""
    return hashlib.blake2b(f"{socket.gethostname()} {space}".encode(), digest_size=4).hexdigest()


def _lives(pid: str) -> bool:
    """Whether a process works; a dead one stays in the table until its parent has heard of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def spare(out: str | Path, inputs: Iterable[str | Path], *, option: str = "--out") -> None:
    """Raises where an output is, or lies within, or holds, something that is read; links are followed."""
    place = _real(out)
    real = functools.cache(_real)  # of folders, in which there may be many files
    for given in inputs:
        path = Path(given)
        own = real(path.parent) / path.name if path.name != ".." else _real(path)
        for source in {own, _real(path)} if os.path.islink(path) else {own}:  # a link is an input as well
            if not (source.is_relative_to(place) or place.is_relative_to(source)):
                continue
            if place == source or (place.is_dir() and os.path.lexists(source) and not source.is_dir()):
                raise StillmotionError(f"{out} would write over {given}, which is read; choose another {option}")
            if source.is_dir():
                how = "lies in" if place.is_relative_to(source) else "holds"
                raise StillmotionError(f"{out} {how} {given}, which is read; choose another {option}")


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))  # which, unlike Path.resolve, goes round in no loop of links


def fingerprint(file: str | Path) -> str:
    """A hash of a file's size, its ends and a sample of blocks between them: what tells its content, in a moment.

    Of a folder, of all its files by name. A file that cannot be read has the fingerprint of its reason.
    """
    path = Path(file)
    digest = hashlib.blake2b(digest_size=16)
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        for part in files:
            if part.is_file():
                digest.update(os.fsencode(part.name) if path.is_dir() else b"")
                _sampled(part, digest)
    except OSError as error:
        digest.update(str(error.errno).encode())
    return digest.hexdigest()


def _sampled(file: Path, digest: Any) -> None:
    with open(file, "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        digest.update(f"{size}\n".encode())
        digest.update(opened.read(_ENDS))
        between = size - 2 * _ENDS
        for i in range(_BLOCKS if between > 0 else 0):
            opened.seek(_ENDS + between * i // _BLOCKS)
            digest.update(opened.read(_BLOCK))
        opened.seek(max(_ENDS, size - _ENDS))
        digest.update(opened.read(_ENDS))


def free_space(place: Path) -> str:
    """How much is left where a place is, in words."""
    for folder in (place, *place.parents):
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(folder).free
            return f"{free / 2**20:,.0f} MiB free"
    return "free space unknown"


def _reason(error: BaseException, place: Path) -> str:
    words = (getattr(error, "strerror", None) or str(error)).strip().partition("\n")[0]
    return f"{words} ({free_space(place)})" if _is_full(error) else words


def _is_full(error: BaseException) -> bool:
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    words = ("No space left", "PytorchStreamWriter", "inline_container", "os error 28", "quota")
    return full or any(word in str(error) for word in words)


def _is_of_disk(error: BaseException) -> bool:
    kinds = ("SafetensorError", "ArrowException", "ArrowInvalid")
    return isinstance(error, OSError) or _is_full(error) or type(error).__name__ in kinds


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
