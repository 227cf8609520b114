"""FAISS's exact index of unit vectors in a file, for those who want to keep one or to search it elsewhere."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.evaluate.outputs import Read, spare_file, tried
from stillmotion.evaluate.told import say as to_stderr
from stillmotion.files import write, write_json

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def open_index(file: str | Path, references: np.ndarray, *, say: Callable[[str], object] = to_stderr) -> Search:
    """A search of references (r, D) by cosine: from queries (q, D) and k to cosines and numbers, (q, k) each.

    file: read, mapped into memory, where it was made of these very references and is whole, and else written. What it
        was made of, and a hash of its bytes, stand beside it in <file>.json.
    say: told where it is damaged or was swapped.
    """
    faiss = _faiss()
    file = tried(file, option="--index")
    note = _note(file)
    unit = _unit(references)
    made_of = {"videos": len(unit), "channels": unit.shape[1], "sha256": hashlib.sha256(unit.data).hexdigest()}
    noted = _noted(note)
    if file.exists() and {name: noted.get(name) for name in made_of} == made_of:
        if noted.get("file") == _hash(file):
            index = _read(file)
            return lambda queries, k: index.search(_unit(queries), k)
        say(f"{file} is damaged or was swapped; it is made again")
    built = faiss.IndexFlatIP(unit.shape[1])
    built.add(unit)
    write(file, lambda partial: _write(built, partial), option="--index")
    write_json(note, made_of | {"file": _hash(file)}, option="--index")
    return lambda queries, k: built.search(_unit(queries), k)


def check_index(file: str | Path, read: Read) -> None:
    """Raises where an index cannot be made: without FAISS, over what is read, or where nothing can be written."""
    _faiss()
    for place in (Path(file), _note(Path(file))):
        spare_file(place, read, option="--index")
        tried(place, option="--index")


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise StillmotionError(
            "an index needs FAISS, which is not installed; pip install 'stillmotion[index]', or leave --index out"
        ) from None
    return faiss


def _read(file: Path) -> Any:
    faiss = _faiss()
    if str(file).isprintable():
        return faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
    return faiss.deserialize_index(np.fromfile(file, np.uint8))  # FAISS opens no name that is not UTF-8


def _write(built: Any, partial: Path) -> None:
    """By Python's own file, whose errors name the reason."""
    refused: list[OSError] = []

    def put(content: bytes) -> int:
        try:
            return opened.write(content)
        except OSError as error:
            refused.append(error)
            return 0

    with partial.open("wb") as opened:
        try:
            _faiss().write_index(built, _faiss().PyCallbackIOWriter(put))
        except RuntimeError:
            raise (refused or [OSError("FAISS cannot write it")])[0] from None


def _unit(x: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.ascontiguousarray(x / np.maximum(lengths, 1e-12), np.float32)


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _note(file: Path) -> Path:
    return file.with_name(file.name + ".json")


def _noted(note: Path) -> dict[str, Any]:
    """What stands beside an index; nothing where it is missing or torn, so that the index is made again."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
