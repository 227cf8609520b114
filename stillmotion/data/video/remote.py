"""Where bytes of videos come from: files, addresses that fsspec knows (s3://bucket/set), or parts of either."""

import errno
import re
from pathlib import Path
from typing import Any, BinaryIO

from stillmotion.errors import StillmotionError


class ByteSource:
    """Bytes of a video that are no file of their own; equal ones hold equal bytes, and the text names them."""

    def open(self) -> BinaryIO:
        """The bytes to be read from any place on, or VideoError."""
        raise NotImplementedError


def is_url(path: str) -> bool:
    """Whether a place has a scheme, and is no path on this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def read_byte_range(file_path: str, offset: int = 0, num_bytes: int | None = None) -> bytes:
    """So many bytes of a file from an offset on, or those that are there; None is all. What fails is an OSError."""
    if not is_url(file_path):
        with open(file_path, "rb") as file:
            file.seek(offset)
            return file.read() if num_bytes is None else file.read(num_bytes)
    import fsspec  # type: ignore[import-untyped]  # where no address is named, it is not needed

    try:
        system, path = fsspec.core.url_to_fs(file_path)
        found: Any = system.cat_file(path, start=offset or None, end=None if num_bytes is None else offset + num_bytes)
        return bytes(found)
    except (ImportError, ValueError) as error:  # no package for the scheme, or no such scheme
        raise StillmotionError(f"{file_path}: {str(error).splitlines()[0]}") from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file") from None
    except Exception as error:  # every file system raises its own kinds
        raise OSError(errno.EIO, str(error).strip().partition("\n")[0] or type(error).__name__) from error


def join_path(root: str, name: str) -> str:
    """The place of a file in a folder."""
    return f"{root.rstrip('/')}/{name}" if is_url(root) else str(Path(root, name))
