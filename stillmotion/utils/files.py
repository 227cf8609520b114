"""Files that are written whole or not at all, folders that have one writer, and originals that are never written to."""

import contextlib
import errno
import functools
import itertools
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.utils.hashing import hash_bytes


def path_size(path: Path) -> int:
    """Of a file, or of all files in a folder, in bytes; 0 where nothing is there."""
    try:
        if not os.path.isdir(path):
            return os.lstat(path).st_size
        with os.scandir(path) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except (OSError, ValueError):
        return 0


GENERATED_MARKER = (
    ".stillmotion"  # in folders that a verb filled: their videos are no input, unless they are named themselves
)
_TEMP_COUNTER = itertools.count()


def write_atomic(file: str | Path, write_fn: Callable[[Path], object], *, option_name: str = "--out") -> None:
    """Have `write_fn` write a file under another name, and give it its own when it is whole and on the disk.

    What cannot be written is one error with the file, the reason and the free space; what was there before stays.
    `write_fn` may make a folder instead, which takes the place of whatever was there; its files are left to the system to
    bring to the disk. option: by which another place is chosen.
    """
    place = Path(file)
    # Short, for long names; no two processes have the same one, on however many machines.
    partial = place.with_name(f".{os.getpid()}-{next(_TEMP_COUNTER)}-{_host_id()}.part{place.suffix[:16]}")
    try:
        write_fn(partial)
        if partial.is_dir():
            remove_path(place)
        else:
            with open(partial, "rb+") as written:
                os.fsync(written.fileno())
            os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, place)
    except StillmotionError:
        raise
    except Exception as error:  # writers of tensors and tables raise their own kinds
        if not _is_disk_error(error):
            raise
        raise StillmotionError(
            f"cannot write {place}: {_disk_error_reason(error, place.parent)}; choose another {option_name}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            remove_path(partial)


def remove_path(path: str | Path) -> None:
    """Remove a file, a link, or a folder with what is in it, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)


def write_text(file: str | Path, text: str, *, option_name: str = "--out") -> None:
    """Write a text file, whole or not at all; names that are not UTF-8 are written as they are."""
    write_atomic(
        file,
        lambda partial: partial.write_text(text, encoding="utf-8", errors="surrogateescape"),
        option_name=option_name,
    )


def write_json(file: str | Path, value: Any, *, option_name: str = "--out") -> None:
    """Write JSON, whole or not at all."""
    write_text(file, json.dumps(value, indent=1) + "\n", option_name=option_name)


def read_json(file: str | Path, *, hint: str) -> Any:
    """What a JSON file holds; one that is torn or damaged is named, with the remedy. A missing one is an OSError."""
    try:
        return json.loads(Path(file).read_text(encoding="utf-8", errors="surrogateescape"))
    except ValueError as error:
        raise StillmotionError(f"{file} is torn or damaged ({error}); {hint}") from None


def ensure_dir(directory: str | Path, *, option_name: str = "--out", mark_generated: bool = False) -> Path:
    """The folder, made where it is not there. mark: its videos are the work of a verb."""
    place = Path(directory)
    with report_disk_errors(place, option_name=option_name):
        place.mkdir(parents=True, exist_ok=True)
        if mark_generated and not (place / GENERATED_MARKER).exists():
            (place / GENERATED_MARKER).touch()
    return place


def check_writable(directory: str | Path, *, option_name: str = "--out") -> None:
    """Raises where `made` could not make a folder or nothing could be written into it; nothing is tried."""
    place = Path(directory).absolute()
    with report_disk_errors(directory, option_name=option_name):
        there = next(path for path in (place, *place.parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextlib.contextmanager
def report_disk_errors(path: str | Path, *, option_name: str = "--out") -> Iterator[None]:
    """What the disk refuses meanwhile is one line; option: by which another place is chosen."""
    try:
        yield
    except OSError as error:
        raise StillmotionError(
            f"cannot write to {path}: {_disk_error_reason(error, Path(path))}; choose another {option_name}"
        ) from None


@functools.cache
def _host_id() -> str:
    """Tells this machine, and the container on it, from others whose processes have the same numbers."""
    numbers = "/proc/self/ns/pid"
    space = os.readlink(numbers) if os.path.lexists(numbers) else ""
    return hash_bytes(f"{socket.gethostname()} {space}".encode(), digest_size=4)


def check_no_overlap(output_path: str | Path, inputs: Iterable[str | Path], *, option_name: str = "--out") -> None:
    """Raises where an output is, or lies within, or holds, something that is read; links are followed."""
    place = _realpath(output_path)
    real = functools.cache(_realpath)  # of folders, in which there may be many files
    for given in inputs:
        path = Path(given)
        own = real(path.parent) / path.name if path.name != ".." else _realpath(path)
        for source in {own, _realpath(path)} if os.path.islink(path) else {own}:  # a link is an input as well
            if not (source.is_relative_to(place) or place.is_relative_to(source)):
                continue
            if place == source or (place.is_dir() and os.path.lexists(source) and not source.is_dir()):
                raise StillmotionError(
                    f"{output_path} would write over {given}, which is read; choose another {option_name}"
                )
            if source.is_dir():
                how = "lies in" if place.is_relative_to(source) else "holds"
                raise StillmotionError(f"{output_path} {how} {given}, which is read; choose another {option_name}")


def _realpath(path: str | Path) -> Path:
    return Path(os.path.realpath(path))  # which, unlike Path.resolve, goes round in no loop of links


def describe_free_space(path: Path) -> str:
    """How much is left where a place is, in words."""
    for folder in (path, *path.parents):
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(folder).free
            return f"{free / 2**20:,.0f} MiB free"
    return "free space unknown"


def _disk_error_reason(error: BaseException, path: Path) -> str:
    words = (getattr(error, "strerror", None) or str(error)).strip().partition("\n")[0]
    return f"{words} ({describe_free_space(path)})" if _is_disk_full(error) else words


def _is_disk_full(error: BaseException) -> bool:
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    words = ("No space left", "PytorchStreamWriter", "inline_container", "os error 28", "quota")
    return full or any(word in str(error) for word in words)


def _is_disk_error(error: BaseException) -> bool:
    kinds = ("SafetensorError", "ArrowException", "ArrowInvalid")
    return isinstance(error, OSError) or _is_disk_full(error) or type(error).__name__ in kinds


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def check_file_writable(file: str | Path, *, option_name: str = "--out") -> Path:
    """The place of a file to come, whose folder is made; an error where it cannot be written."""
    place = Path(file)
    ensure_dir(place.parent, option_name=option_name)
    with report_disk_errors(place, option_name=option_name):
        if place.is_dir():
            raise StillmotionError(f"cannot write {place}: it is a folder; choose another {option_name}")
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    return place


def ensure_writable_dir(folder: str | Path, *, option_name: str = "--out", mark_generated: bool = False) -> Path:
    """The folder, made where it is not there; an error where nothing can be written into it."""
    place = ensure_dir(folder, option_name=option_name, mark_generated=mark_generated)
    with report_disk_errors(place, option_name=option_name), tempfile.TemporaryFile(dir=place):
        pass
    return place


def join_inside(folder: str | Path, name: str) -> Path:
    """Where a thing of this name is written below a folder; an error where the name leads out of it."""
    place = Path(folder)
    if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts:
        raise StillmotionError(f"{name!r} is no name of a file in {place}; mend the list that it stands in")
    return place / name
