"""Arrays stored as safetensors with an integrity hash of the file's name and content."""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
from safetensors.numpy import save_file

from stillmotion.utils.files import write_atomic
from stillmotion.utils.hashing import hash_bytes

logger = logging.getLogger(__name__)

_DIGEST_KEY = "digest"


class StoredArrays(NamedTuple):
    """Arrays by name, and the metadata stored with them."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, Any]


def save_arrays(
    file: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any], *, option_name: str = "--cache-dir"
) -> None:
    """Write arrays and metadata to a .safetensors file.

    Args:
        file: File to write.
        arrays: Arrays by name.
        metadata: Plain JSON data.
        option_name: Command-line option that chooses another folder, for error messages.
    """
    rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(metadata)
    header = {"about": text, _DIGEST_KEY: _digest(file, rows, text)}
    write_atomic(file, lambda partial: save_file(rows, partial, header), option_name=option_name)


def load_arrays(file: Path, names: Sequence[str] | None = None, *, warn: bool = True) -> StoredArrays | None:
    """Read what `save_arrays` wrote to this file.

    Args:
        file: File to read.
        names: Names of the arrays, in the order in which they were stored; None is all of them, by name.
        warn: Log a warning if the file is damaged or was renamed.

    Returns:
        The arrays and their metadata; None if the file is missing, damaged or another one.
    """
    if not file.exists():
        return None
    try:
        with safetensors.safe_open(file, "numpy") as opened:
            arrays = {name: opened.get_tensor(name) for name in names or sorted(opened.keys())}
            header = opened.metadata()
        if header[_DIGEST_KEY] == _digest(file, arrays, header["about"]):
            return StoredArrays(arrays, json.loads(header["about"]))
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, TypeError):
        pass
    if warn:
        logger.warning("%s is damaged or was renamed; it is computed again", file)
    return None


def _digest(file: Path, arrays: Mapping[str, np.ndarray], metadata: str) -> str:
    parts: list[bytes | memoryview] = [f"{file.stem}\n{metadata}\n".encode("utf-8", "surrogateescape")]
    for name, array in arrays.items():
        parts.append(f"{name} {array.dtype} {array.shape}\n".encode())
        parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return hash_bytes(*parts)
