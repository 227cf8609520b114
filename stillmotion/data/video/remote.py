"""Byte ranges of local files and of URLs (fsspec)."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

from stillmotion.errors import StillmotionError


class ByteSource:
    """Base class of videos that are not a file of their own, such as a member of a shard.

    Equal sources have equal bytes; `str(source)` names the video in messages.
    """

    def open(self) -> BinaryIO:
        """Open the bytes as a seekable file, or raise VideoError."""
        raise NotImplementedError


def is_url(path: str) -> bool:
    """Whether a path has a scheme, such as s3://."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def read_byte_range(path: str, offset: int = 0, num_bytes: int | None = None) -> bytes:
    """Read a range of bytes of a file; fewer are returned at its end.

    Args:
        path: Local path or URL.
        offset: First byte.
        num_bytes: Number of bytes; None reads to the end.

    Raises:
        OSError: If the file cannot be read.
        StillmotionError: If no package for the scheme of the URL is installed.
    """
    if not is_url(path):
        check_regular_file(path)
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read() if num_bytes is None else file.read(num_bytes)
    import fsspec  # type: ignore[import-untyped]  # needed for URLs only

    try:
        system, remote_path = fsspec.core.url_to_fs(path)
        end = None if num_bytes is None else offset + num_bytes
        return bytes(system.cat_file(remote_path, start=offset or None, end=end))
    except (ImportError, ValueError) as error:  # no package for the scheme, or no such scheme
        raise StillmotionError(f"{path}: {str(error).splitlines()[0]}") from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file") from None
    except Exception as error:  # every file system raises errors of its own
        raise OSError(errno.EIO, str(error).strip().partition("\n")[0] or type(error).__name__) from error


def check_regular_file(path: str) -> None:
    """Check that a local path is a regular file: opening a pipe or a device could block.

    Args:
        path: The file.

    Raises:
        OSError: If it does not exist or is something else.
    """
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = "folder" if stat.S_ISDIR(mode) else "pipe, socket or device"
        raise OSError(errno.EINVAL, f"not a regular file ({kind})")


def join_path(root: str, name: str) -> str:
    """Join a folder and a file name.

    Args:
        root: Local path or URL of the folder.
        name: Name of the file.
    """
    return f"{root.rstrip('/')}/{name}" if is_url(root) else str(Path(root, name))
