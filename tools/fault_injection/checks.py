"""What commands leave behind: digests of their results, damaged files, leftovers, and changes to a user's files."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from stillmotion.data.transcode.manifest import MANIFEST_FILE
from stillmotion.data.video import open_video
from stillmotion.index.video_index import VideoIndex
from stillmotion.index.video_segments import VECTOR_NAMES


def digest_weights(out: Path) -> str:
    """Return a digest of the weights of a run."""
    digest = hashlib.sha256()
    with safe_open(out / "checkpoint.safetensors", "np") as opened:
        for name in sorted(opened.keys()):
            digest.update(name.encode() + opened.get_tensor(name).tobytes())
    return digest.hexdigest()


def digest_copies(out: Path) -> str:
    """Return a digest of a re-encoded data set: its videos, labels, and manifest without times."""
    digest = hashlib.sha256()
    for file in sorted(out.rglob("*.mp4")):
        digest.update(file.name.encode() + file.read_bytes())
    digest.update((out / "labels.csv").read_bytes())
    lines = [json.loads(line) for line in (out / MANIFEST_FILE).read_text().splitlines()]
    for line in sorted(lines, key=lambda line: line["path"]):
        digest.update(json.dumps(line | {"elapsed_seconds": 0, "line_hash": ""}, sort_keys=True).encode())
    return digest.hexdigest()


def digest_shards(out: Path) -> str:
    """Return a digest of the shards of a data set and of their lists."""
    digest = hashlib.sha256()
    for file in sorted([*out.glob("*.tar"), *out.glob("shards.*")]):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def digest_embeddings(out: Path) -> str:
    """Return a digest of embeddings."""
    rows = np.load(out / "rows.npz")
    return hashlib.sha256(b"".join(rows[name].tobytes() for name in ("path", "whole", "static", "dynamic"))).hexdigest()


def read_index(folder: Path) -> dict[str, Any]:
    """Read all that an index holds, and the neighbors of a segment."""
    index = VideoIndex.open(folder)
    segments = index.segments()
    if len(index) != len(segments):
        raise AssertionError(f"{len(index)} rows, but {len(segments)} segments")
    return {
        "metadata": index.metadata,
        "segments": segments,
        "failures": index.failed_videos(),
        "thumbnails": [index.thumbnail(segment.id) for segment in segments],
        "vectors": [index.vectors(name).tobytes() for name in VECTOR_NAMES],
        "neighbors": index.neighbors(segments[0].id, top_k=3) if segments else [],
    }


def digest_index(out: Path) -> str:
    """Return a digest of all that an index holds."""
    return hashlib.sha256(repr(read_index(out)).encode()).hexdigest()


def digest_files(folder: Path) -> str:
    """Return a digest of the names, contents and modification times of the regular files of a folder."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink():
            digest.update(f"{file.relative_to(folder)} {file.stat().st_mtime_ns} ".encode("utf-8", "surrogateescape"))
            digest.update(file.read_bytes())
    return digest.hexdigest()


def find_partial_files(folder: Path) -> list[str]:
    """Return the names of temporary files that a writer has left in a folder of results."""
    return sorted(file.name for file in folder.rglob(".*.part*"))


def find_damaged_file(folder: Path) -> str | None:
    """Return the first file of a folder of results that has its own name and cannot be read whole."""
    for file in sorted(folder.rglob("*")):
        if file.name.startswith(".") or not file.is_file():
            continue
        try:
            _read_whole(file, folder)
        except Exception as error:
            return f"{file.name} ({error})"
    return None


def _read_whole(file: Path, folder: Path) -> None:
    if file.suffix == ".json":
        json.loads(file.read_text())
    elif file.suffix == ".safetensors":
        with safe_open(file, "np") as opened:
            for name in opened.keys():  # noqa: SIM118
                opened.get_tensor(name)
    elif file.suffix == ".npz":
        for array in np.load(file).values():
            array.tobytes()
    elif file.name == MANIFEST_FILE:
        for line in file.read_text().splitlines(keepends=True):
            entry = json.loads(line) if line.endswith("\n") else {"error": "an incomplete line, which is not read"}
            copy = folder / entry.get("path", "")
            # A copy that is not there lies in a shard; if it does not, the resumed result differs.
            if not entry["error"] and copy.is_file() and len(open_video(copy)) != entry["num_frames"]:
                raise ValueError(f"{copy.name} has another number of frames")


@contextlib.contextmanager
def unchanged(folder: Path, failures: list[str]) -> Iterator[None]:
    """Note a failure if the files of a folder change meanwhile.

    Args:
        folder: Folder of a user's files.
        failures: List to which the failure is added.
    """
    before = digest_files(folder)
    yield
    if digest_files(folder) != before:
        failures.append(f"files in {folder} have changed")
