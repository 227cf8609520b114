"""Where bytes of videos come from: files, addresses that fsspec knows (s3://bucket/set), or parts of either."""

import errno
import re
from pathlib import Path
from typing import Any, BinaryIO

from stillmotion.errors import StillmotionError


class Source:
    """Bytes of a video that are no file of their own; equal ones hold equal bytes, and the text names them."""

    def open(self) -> BinaryIO:
        """The bytes to be read from any place on, or VideoError."""
        raise NotImplementedError


def is_address(place: str) -> bool:
    """Whether a place has a scheme, and is no path on this machine."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", place) is not None


def read_part(place: str, offset: int = 0, size: int | None = None) -> bytes:
    """So many bytes of a file from an offset on, or those that are there; None is all. What fails is an OSError."""
    if not is_address(place):
        with open(place, "rb") as file:
            file.seek(offset)
            return file.read() if size is None else file.read(size)
    import fsspec  # type: ignore[import-untyped]  # where no address is named, it is not needed

    try:
        system, path = fsspec.core.url_to_fs(place)
        found: Any = system.cat_file(path, start=offset or None, end=None if size is None else offset + size)
        return bytes(found)
    except (ImportError, ValueError) as error:  # no package for the scheme, or no such scheme
        raise StillmotionError(f"{place}: {str(error).splitlines()[0]}") from None
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file") from None
    except Exception as error:  # every file system raises its own kinds
        raise OSError(errno.EIO, str(error).strip().partition("\n")[0] or type(error).__name__) from error


def below(root: str, name: str) -> str:
    """The place of a file in a folder."""
    return f"{root.rstrip('/')}/{name}" if is_address(root) else str(Path(root, name))
