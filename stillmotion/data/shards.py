"""Videos in tar files: a folder or an address with shard-000000.tar, …, shards.json, which names them, and
shards.arrow, which says where each video lies.

A video is read by its range of bytes, and these are checked by their sum. Its name is its path in the set that the
shards were made of, with the sum behind it, so that what is kept of a video is not taken for that of another.
The list of videos is mapped into memory from a disk, once for all processes of a machine.
"""

import io
import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import PurePath
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from stillmotion.data.address import Source, below, is_address, read_part
from stillmotion.data.paths import TARGET, read_labels
from stillmotion.data.sets import matching, split_column
from stillmotion.data.video import Video, open_file
from stillmotion.errors import StillmotionError, VideoError

INDEX, LIST = "shards.json", "shards.arrow"
VERSION = 2
# Of each video in the list, in the order of the set: the number that its key is, the shard's, and where it lies there.
PLACE = pa.schema(
    [
        ("number", pa.int64()),
        ("shard", pa.int32()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("crc32", pa.uint32()),
        ("path", pa.large_string()),
        ("frames", pa.int32()),
        ("fps", pa.float64()),
    ]
)
_ROW = "row:"  # before the names of columns of labels.csv


def key_of(number: int) -> str:
    """By which a shard calls a video of the set."""
    return f"{number:09d}"


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

    root: the folder or the address. names: of its tar files. size: of the list, in bytes.
    chosen: numbers of those that are taken; None is all. Labels are numbered alike whichever are.
    """

    def __init__(self, root: str, names: Sequence[str], size: int, chosen: np.ndarray | None = None) -> None:
        self.root = PurePath(root)
        self._root, self._names, self._size, self._chosen = root, names, size, chosen

    def __len__(self) -> int:
        return len(self._list) if self._chosen is None else len(self._chosen)

    def __getstate__(self) -> dict[str, Any]:
        """Without what another process on this machine maps for itself."""
        spared = ("labels", "rows", "_labelled") + ("_list",) * (not is_address(self._root))
        return {name: value for name, value in vars(self).items() if name not in spared}

    def video(self, i: int) -> Video:
        return open_file(self._sample(i))

    def name(self, i: int) -> str:
        sample = self._sample(i)
        return below(self._root, f"{sample.path}#{sample.crc32:08x}")

    @property
    def shards(self) -> list[np.ndarray]:
        """The numbers (in this set) of the videos in each shard, in the order in which they lie there."""
        shard, offset = (self._taken(self._list[name].to_numpy()) for name in ("shard", "offset"))
        order = np.lexsort((offset, shard))
        return [part for part in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1) if len(part)]

    @cached_property
    def labels(self) -> dict[str, np.ndarray]:
        numbers, _ = self._labelled
        return {} if numbers is None else {TARGET: self._taken(numbers)}

    @property
    def classes(self) -> dict[str, list[str]]:
        numbers, names = self._labelled
        return {} if numbers is None else {TARGET: names}

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """All columns of labels.csv, a dict for each video."""
        names = [name for name in self._list.column_names if name.startswith(_ROW)]
        table = self._list.select(["path", *names])
        some = table if self._chosen is None else table.take(self._chosen)
        plain = some.rename_columns(["path", *(name.removeprefix(_ROW) for name in names)])
        return plain.to_pylist()

    def part(self, split: str, fold: int | None) -> "ShardSet":
        """Those of a split by the columns that `open_list` knows."""
        index = below(self._root, INDEX)
        columns = [name.removeprefix(_ROW) for name in self._list.column_names if name.startswith(_ROW)]
        folds, _ = self._distinct(["fold"])
        column, values = split_column(index, [dict.fromkeys(columns, "") | row for row in folds], split, fold)
        rows, of = self._distinct([column])
        wanted = np.isin(of, matching(index, rows, column, values))
        return ShardSet(self._root, self._names, self._size, np.flatnonzero(wanted))

    @cached_property
    def _list(self) -> pa.Table:
        return _read_list(self._root, self._size)

    @cached_property
    def _labelled(self) -> tuple[np.ndarray | None, list[str]]:
        """The number of each video's class, whichever are taken, and the classes' names; None where none is known."""
        rows, of = self._distinct(["class", "label"])
        labels, classes = read_labels(self.root / INDEX, rows)
        return (None if labels is None else np.asarray(labels, np.int64)[of]), classes

    def _distinct(self, columns: Sequence[str]) -> tuple[list[dict[str, str]], np.ndarray]:
        """The rows that differ in these columns, of those that are there; and which of them each video has."""
        there = [name for name in columns if _ROW + name in self._list.column_names]
        if not there:
            return [{}], np.zeros(len(self._list), np.int64)
        found = [self._list[_ROW + name].combine_chunks() for name in there]
        codes = np.stack([column.indices.to_numpy(zero_copy_only=False) for column in found], 1)
        kinds, of = np.unique(codes, axis=0, return_inverse=True)
        texts = [column.dictionary.to_pylist() for column in found]
        rows = [{name: text[c] for name, text, c in zip(there, texts, kind, strict=True)} for kind in kinds]
        return rows, of.reshape(-1)

    def _taken(self, values: np.ndarray) -> np.ndarray:
        return values if self._chosen is None else values[self._chosen]

    def _sample(self, i: int) -> Sample:
        place = i if self._chosen is None else int(self._chosen[i])
        row = {name: self._list[name][place].as_py() for name in PLACE.names}
        where = (row[name] for name in ("path", "offset", "size", "crc32"))
        return Sample(below(self._root, self._names[row["shard"]]), key_of(row["number"]), *where)


def open_shards(root: str, *, split: str | None = None, fold: int | None = None) -> ShardSet:
    """The videos of a folder of shards, or of an address, or those of a split by the columns that `open_list` knows."""
    index = below(root, INDEX)
    found = read_index(root)
    if found is None:
        raise StillmotionError(f"{index}: no such file; a folder of shards is made by `prepare --form shards`")
    try:
        videos = ShardSet(root, [str(shard["name"]) for shard in found["shards"]], int(found["list"]))
        if len(videos) == 0:
            raise StillmotionError(f"{index}: no videos in these shards; prepare them again")
    except (KeyError, TypeError, ValueError) as error:
        raise StillmotionError(f"{index}: no index of shards ({error!r}); prepare them again") from None
    return videos if split is None else videos.part(split, fold)


def write_list(place: str, samples: Sequence[dict[str, Any]]) -> None:
    """Writes the list of a set's videos, each with what `PLACE` names and its row of labels.csv, to a file."""
    ordered = sorted(samples, key=lambda sample: sample["number"])
    columns = {field.name: pa.array([one[field.name] for one in ordered], field.type) for field in PLACE}
    for name in dict.fromkeys(name for one in ordered for name in one["row"]):
        texts = pa.array([one["row"].get(name, "") for one in ordered], pa.string())
        columns[_ROW + name] = texts.dictionary_encode()
    table = pa.table(columns)
    with pa.OSFile(place, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, len(table)))


def _read_list(root: str, size: int) -> pa.Table:
    """The list of a folder, mapped into memory, or of an address."""
    place = below(root, LIST)
    again = "prepare the shards again"
    try:
        source = pa.BufferReader(read_part(place)) if is_address(root) else pa.memory_map(place)
        if source.size() != size:
            raise StillmotionError(f"{place} has {source.size()} bytes, and {INDEX} says {size}; {again}")
        table = pa.ipc.open_file(source).read_all()
    except OSError as error:
        raise StillmotionError(f"{place}: {os.strerror(error.errno or 0).lower()}; {again}") from None
    except pa.ArrowException as error:
        raise StillmotionError(f"{place} is torn or damaged ({str(error).splitlines()[0]}); {again}") from None
    if table.schema.names[: len(PLACE.names)] != PLACE.names:
        raise StillmotionError(f"{place}: no list of videos in shards; {again}")
    return table


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
