"""Arrays on disk that are known again: a file holds a hash of what it is called and of what is in it."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
from safetensors.numpy import save_file

from stillmotion.utils.files import write_atomic

_DIGEST_KEY = "digest"


class StoredArrays(NamedTuple):
    """Arrays by name, and what was noted beside them."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, Any]


def save_arrays(
    file: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, Any], *, option_name: str = "--cache-dir"
) -> None:
    """Write arrays and notes, plain JSON, to a .safetensors file. option: by which another place is chosen."""
    rows = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    told = json.dumps(metadata)
    noted = {"about": told, _DIGEST_KEY: _digest(file, rows, told)}
    write_atomic(file, lambda partial: save_file(rows, partial, noted), option_name=option_name)


def load_arrays(file: Path, names: Sequence[str] | None = None, *, say: Callable[[str], object]) -> StoredArrays | None:
    """What `store` wrote under this very name; None where it is not there, or where it is damaged or another file.

    names: of the arrays, in the order that they were stored in; None is all of them, by name. say: told of the latter.
    """
    if not file.exists():
        return None
    try:
        with safetensors.safe_open(file, "numpy") as opened:
            arrays = {name: opened.get_tensor(name) for name in names or sorted(opened.keys())}
            noted = opened.metadata()
        if noted[_DIGEST_KEY] == _digest(file, arrays, noted["about"]):
            return StoredArrays(arrays, json.loads(noted["about"]))
    except (OSError, safetensors.SafetensorError, KeyError, ValueError, TypeError):
        pass
    say(f"{file} is damaged or was swapped; it is computed anew")
    return None


def _digest(file: Path, arrays: Mapping[str, np.ndarray], metadata: str) -> str:
    digest = hashlib.blake2b(f"{file.stem}\n{metadata}\n".encode("utf-8", "surrogateescape"), digest_size=16)
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
