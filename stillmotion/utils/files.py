"""Atomic writing of files, checks of output paths, and JSON."""

import contextlib
import errno
import functools
import itertools
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.utils.hashing import hash_bytes

GENERATED_MARKER = ".stillmotion"  # in folders that a command filled: their videos are no input unless named themselves
_TEMP_COUNTER = itertools.count()


def write_atomic(file: str | Path, write_fn: Callable[[Path], object], *, option_name: str = "--out") -> None:
    """Write a file under a temporary name, and rename it when it is complete and on the disk.

    If that fails, an existing file is left as it was.

    Args:
        file: File to write.
        write_fn: Function that writes to the path it is given. It may make a folder instead, which replaces whatever
            was there; the files in it are not synchronized to the disk.
        option_name: Command-line option that chooses another path, for error messages.

    Raises:
        StillmotionError: The disk is full or does not allow it.
    """
    target = Path(file)
    # Short, because names may be long; unique among the processes of all machines.
    partial = target.with_name(f".{os.getpid()}-{next(_TEMP_COUNTER)}-{_host_id()}.part{target.suffix[:16]}")
    try:
        write_fn(partial)
        if partial.is_dir():
            remove_path(target)
        else:
            with open(partial, "rb+") as written:
                os.fsync(written.fileno())
            os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, target)
    except StillmotionError:
        raise
    except Exception as error:  # writers of tensors and tables raise errors of their own types
        if not _is_disk_error(error):
            raise
        raise StillmotionError(
            f"cannot write {target}: {_disk_error_reason(error, target.parent)}; choose another {option_name}"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            remove_path(partial)


def write_text(file: str | Path, text: str, *, option_name: str = "--out") -> None:
    """Write a text file atomically, as UTF-8; bytes of file names that are not UTF-8 are kept.

    Args:
        file: File to write.
        text: Its content.
        option_name: Command-line option that chooses another path, for error messages.
    """
    write_atomic(
        file,
        lambda partial: partial.write_text(text, encoding="utf-8", errors="surrogateescape"),
        option_name=option_name,
    )


def write_json(file: str | Path, value: Any, *, option_name: str = "--out") -> None:
    """Write a JSON file atomically.

    Args:
        file: File to write.
        value: Plain data.
        option_name: Command-line option that chooses another path, for error messages.
    """
    write_text(file, json.dumps(value, indent=1) + "\n", option_name=option_name)


def read_json(file: str | Path, *, hint: str = "delete it or write it again") -> Any:
    """Read a JSON file.

    Args:
        file: File to read.
        hint: What the user can do about a damaged file.

    Raises:
        StillmotionError: The file is no valid JSON, or no regular file.
        OSError: The file is missing or cannot be read.
    """
    mode = os.stat(file).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # reading a pipe or a device may never end
        raise StillmotionError(f"{file} is not a regular file; {hint}")
    try:
        return json.loads(Path(file).read_text(encoding="utf-8", errors="surrogateescape"))
    except (ValueError, RecursionError) as error:
        raise StillmotionError(f"{file} is torn or damaged ({error}); {hint}") from None


def remove_path(path: str | Path) -> None:
    """Remove a file, a link, or a folder with its content, if it exists.

    Args:
        path: What to remove.
    """
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        Path(path).unlink(missing_ok=True)


def ensure_dir(directory: str | Path, *, option_name: str = "--out", mark_generated: bool = False) -> Path:
    """Make a folder if it does not exist.

    Args:
        directory: The folder.
        option_name: Command-line option that chooses another path, for error messages.
        mark_generated: Mark the videos in it as written by stillmotion, so that they are not read as input.

    Returns:
        The folder as a path.
    """
    path = Path(directory)
    with report_disk_errors(path, option_name=option_name):
        path.mkdir(parents=True, exist_ok=True)
        if mark_generated and not (path / GENERATED_MARKER).exists():
            (path / GENERATED_MARKER).touch()
    return path


def check_writable(
    path: str | Path, *, is_file: bool = False, create: bool = False, option_name: str = "--out"
) -> Path:
    """Check that an output can be written, by writing a temporary file.

    Args:
        path: Folder, or file, that will be written.
        is_file: Whether it is a file.
        create: Make the folder (of the file). Otherwise nothing is made, and the nearest existing folder is checked.
        option_name: Command-line option that chooses another path, for error messages.

    Returns:
        The path.

    Raises:
        StillmotionError: It cannot be written.
    """
    path = Path(path)
    directory = path.parent if is_file else path
    if create:
        ensure_dir(directory, option_name=option_name)
    if is_file and path.is_dir():
        raise StillmotionError(f"cannot write {path}: it is a folder; choose another {option_name}")
    with report_disk_errors(path, option_name=option_name):
        existing = next(each for each in (directory.absolute(), *directory.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=existing):
            pass
    return path


@contextlib.contextmanager
def report_disk_errors(path: str | Path, *, option_name: str = "--out") -> Iterator[None]:
    """Turn errors of the operating system inside the context into one line.

    Args:
        path: What is being written.
        option_name: Command-line option that chooses another path.

    Raises:
        StillmotionError: In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise StillmotionError(
            f"cannot write to {path}: {_disk_error_reason(error, Path(path))}; choose another {option_name}"
        ) from None
    except RecursionError:  # Path.mkdir calls itself for each folder above
        raise StillmotionError(
            f"cannot write to {str(path)[:40]}…: it lies in too many nested folders; choose another {option_name}"
        ) from None


def check_no_overlap(output_path: str | Path, inputs: Iterable[str | Path], *, option_name: str = "--out") -> None:
    """Check that an output is not an input, nor lies in one, nor contains one. Links are followed.

    Args:
        output_path: File or folder to write.
        inputs: Files and folders that are read.
        option_name: Command-line option that chooses another output, for error messages.

    Raises:
        StillmotionError: They overlap.
    """
    output = _realpath(output_path)
    realpath = functools.cache(_realpath)  # of folders, in which there may be many files
    for given in inputs:
        path = Path(given)
        resolved = realpath(path.parent) / path.name if path.name != ".." else _realpath(path)
        for source in {resolved, _realpath(path)} if os.path.islink(path) else {resolved}:  # a link is an input too
            if not (source.is_relative_to(output) or output.is_relative_to(source)):
                continue
            if output == source or (output.is_dir() and os.path.lexists(source) and not source.is_dir()):
                raise StillmotionError(
                    f"{output_path} would write over {given}, which is read; choose another {option_name}"
                )
            if source.is_dir():
                relation = "lies in" if output.is_relative_to(source) else "holds"
                raise StillmotionError(f"{output_path} {relation} {given}, which is read; choose another {option_name}")


def join_inside(folder: str | Path, name: str) -> Path:
    """Join a folder and a relative path that must not lead out of it.

    Args:
        folder: The folder.
        name: Relative path of a file in it.

    Raises:
        StillmotionError: The name is absolute, empty or contains "..".
    """
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise StillmotionError(f"{name!r} is not the name of a file in {folder}; correct the list that names it")
    return Path(folder) / name


def path_size(path: str | Path) -> int:
    """Size in bytes of a file, or of the files in a folder (not below it); 0 if it does not exist.

    Args:
        path: File or folder.
    """
    try:
        if not os.path.isdir(path):
            return os.lstat(path).st_size
        with os.scandir(path) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except (OSError, ValueError):
        return 0


def free_bytes(path: str | Path) -> int | None:
    """Free bytes on the disk of a path that need not exist yet; None if unknown.

    Args:
        path: File or folder.
    """
    absolute = Path(path).absolute()
    for folder in (absolute, *absolute.parents):
        with contextlib.suppress(OSError):
            return shutil.disk_usage(folder).free
    return None


@functools.cache
def _host_id() -> str:
    """Identifies this machine, and the container on it, among others whose processes have the same ids."""
    namespace_file = "/proc/self/ns/pid"
    namespace = os.readlink(namespace_file) if os.path.lexists(namespace_file) else ""
    return hash_bytes(f"{socket.gethostname()} {namespace}".encode(), digest_size=4)


def _realpath(path: str | Path) -> Path:
    return Path(os.path.realpath(path))  # unlike Path.resolve, it does not fail on loops of links


def _disk_error_reason(error: BaseException, path: Path) -> str:
    reason = (getattr(error, "strerror", None) or str(error)).strip().partition("\n")[0]
    if not _is_disk_full(error):
        return reason
    free = free_bytes(path)
    return f"{reason} ({'free space unknown' if free is None else f'{free / 2**20:,.0f} MiB free'})"


def _is_disk_full(error: BaseException) -> bool:
    # torch.save raises RuntimeErrors of its C++ library.
    texts = ("No space left", "PytorchStreamWriter", "inline_container", "iostream error", "os error 28", "quota")
    is_full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return is_full or any(text in str(error) for text in texts)


def _is_disk_error(error: BaseException) -> bool:
    names = ("SafetensorError", "ArrowException", "ArrowInvalid")
    return isinstance(error, OSError) or _is_disk_full(error) or type(error).__name__ in names


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
