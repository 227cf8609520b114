"""Videos in tar files: a folder or an address with shard-000000.tar, … and shards.json, which says where each lies.

A video is read by its range of bytes, and these are checked by their sum. Its name is its path in the set that the
shards were made of, with the sum behind it, so that what is kept of a video is not taken for that of another.
"""

import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any, BinaryIO

import numpy as np

from stillmotion.data.address import Source, below, read_part
from stillmotion.data.paths import TARGET, read_labels
from stillmotion.data.sets import matching, split_column
from stillmotion.data.video import Video, open_file
from stillmotion.errors import StillmotionError, VideoError

INDEX = "shards.json"
VERSION = 1


@dataclass(frozen=True)
class Sample(Source):
    """A video in a shard.

    key: by which the shard calls it. path: in the set that was copied. offset, size: of its bytes; crc32: their sum.
    """

    shard: str
    key: str
    path: str
    offset: int
    size: int
    crc32: int

    def __str__(self) -> str:
        return f"{self.shard}, {self.key} ({self.path})"

    def open(self) -> BinaryIO:
        return io.BytesIO(_fetched(self))


@lru_cache(maxsize=2)  # a video is opened once to count its frames, and again for those that are wanted
def _fetched(sample: Sample) -> bytes:
    try:
        content = read_part(sample.shard, sample.offset, sample.size)
    except OSError as error:
        raise VideoError(f"{sample}: {(error.strerror or 'cannot be read').lower()}") from None
    if len(content) < sample.size:
        raise VideoError(f"{sample}: {len(content)} of its {sample.size} bytes are there; the shard is truncated")
    if zlib.crc32(content) != sample.crc32:
        raise VideoError(f"{sample}: its bytes are not those that were written; the shard is damaged")
    return content


class ShardSet:
    """Videos in shards, in the order of the set that they were made of.

    root: the folder or the address. samples, rows: of each video where it lies, and its columns in labels.csv.
    chosen: numbers of those that are taken; labels are numbered alike whichever are.
    shards: the numbers (in this set) of the videos in each shard, in the order in which they lie there.
    """

    def __init__(
        self, root: str, samples: Sequence[Sample], rows: Sequence[dict[str, str]], chosen: Sequence[int]
    ) -> None:
        self.root = PurePath(root)
        labels, classes = read_labels(self.root / INDEX, rows)
        self._root = root
        self._samples = [samples[i] for i in chosen]
        self.rows = [rows[i] for i in chosen]
        self.labels: dict[str, np.ndarray] = {}
        self.classes: dict[str, list[str]] = {}
        if labels is not None:
            self.labels[TARGET] = np.asarray(labels, np.int64)[np.asarray(chosen, np.int64)]
            self.classes[TARGET] = classes

    def __len__(self) -> int:
        return len(self._samples)

    def video(self, i: int) -> Video:
        return open_file(self._samples[i])

    def name(self, i: int) -> str:
        return below(self._root, f"{self._samples[i].path}#{self._samples[i].crc32:08x}")

    @property
    def shards(self) -> list[np.ndarray]:
        found: dict[str, list[tuple[int, int]]] = {}
        for i, sample in enumerate(self._samples):
            found.setdefault(sample.shard, []).append((sample.offset, i))
        return [np.array([i for _, i in sorted(found[shard])], np.int64) for shard in sorted(found)]


def open_shards(root: str, *, split: str | None = None, fold: int | None = None) -> ShardSet:
    """The videos of a folder of shards, or of an address, or those of a split by the columns that `open_list` knows."""
    index = below(root, INDEX)
    found = read_index(root)
    if found is None:
        raise StillmotionError(f"{index}: no such file; a folder of shards is made by `prepare --form shards`")
    listed = []
    try:
        for shard in found["shards"]:
            for entry in shard["samples"]:
                place = (int(entry[name]) for name in ("offset", "size", "crc32"))
                row = {str(name): str(value) for name, value in entry["row"].items()} | {"path": str(entry["path"])}
                listed.append((Sample(below(root, shard["name"]), str(entry["key"]), row["path"], *place), row))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StillmotionError(f"{index}: no index of shards ({error!r}); prepare them again") from None
    if not listed:
        raise StillmotionError(f"{index}: no videos in these shards; prepare them again")
    listed.sort(key=lambda pair: pair[0].key)
    samples, rows = map(list, zip(*listed, strict=True))
    chosen: Sequence[int] = range(len(rows))
    if split is not None:
        chosen = matching(index, rows, *split_column(index, rows, split, fold))
    return ShardSet(root, samples, rows, chosen)


def read_index(root: str) -> dict[str, Any] | None:
    """What shards.json says; None where there is none."""
    index = below(root, INDEX)
    try:
        found = json.loads(read_part(index))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StillmotionError(f"{index}: {error.strerror or 'cannot be read'}") from None
    except ValueError as error:
        raise StillmotionError(f"{index} is torn or damaged ({error}); prepare the shards again") from None
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise StillmotionError(f"{index}: no index of shards of version {VERSION}; prepare them again")
    return found
