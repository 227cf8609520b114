"""FAISS's exact index of unit vectors in a file, for those who want to keep one or to search it elsewhere."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.errors import StillmotionError

Search = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


def open_index(file: str | Path, references: np.ndarray) -> Search:
    """A search of references (r, D) by cosine: from queries (q, D) and k to cosines and numbers, (q, k) each.

    file: read, mapped into memory, where it was made of these very references, and else written. What it was made of
        stands beside it in <file>.json.
    """
    try:
        import faiss
    except ImportError:
        raise StillmotionError(
            "an index needs FAISS, which is not installed; pip install 'stillmotion[index]', or leave --index out"
        ) from None
    file = Path(file)
    note = file.with_name(file.name + ".json")
    unit = _unit(references)
    made_of = {"videos": len(unit), "channels": unit.shape[1], "sha256": hashlib.sha256(unit.data).hexdigest()}
    if _noted(note) != made_of or not file.exists():
        built = faiss.IndexFlatIP(unit.shape[1])
        built.add(unit)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            note.unlink(missing_ok=True)
            partial = file.with_name(f".{file.name}.{os.getpid()}")
            faiss.write_index(built, str(partial))
            partial.replace(file)
            note.write_text(json.dumps(made_of))
        except (OSError, RuntimeError) as error:
            raise StillmotionError(f"cannot write the index {file}: {error}; choose another --index") from None
    index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP_IFC)
    return lambda queries, k: index.search(_unit(queries), k)


def _unit(x: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.ascontiguousarray(x / np.maximum(lengths, 1e-12), np.float32)


def _noted(note: Path) -> Any:
    try:
        return json.loads(note.read_text())
    except (OSError, ValueError):
        return None
