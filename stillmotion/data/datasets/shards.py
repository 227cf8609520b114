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

from stillmotion.data.datasets.base import DEFAULT_TARGET, VideoDataset
from stillmotion.data.datasets.csv_list import find_split_column, parse_labels, select_rows
from stillmotion.data.video import open_video_file
from stillmotion.data.video.reader import VideoReader
from stillmotion.data.video.remote import ByteSource, is_url, join_path, read_byte_range
from stillmotion.errors import StillmotionError, VideoError

SHARD_INDEX_FILE, SAMPLE_LIST_FILE = "shards.json", "shards.arrow"
SHARD_FORMAT_VERSION = 3
# Of each video in the list, in the order of the set: the number that its key is, the shard's, and where it lies there.
SAMPLE_SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("shard", pa.int32()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("crc32", pa.uint32()),
        ("path", pa.large_string()),
        ("frames", pa.int32()),
        ("fps", pa.float64()),
    ]
)
_LABEL_PREFIX = "label:"  # before the names of columns of labels.csv


def sample_key(index: int) -> str:
    """By which a shard calls a video of the set."""
    return f"{index:09d}"


@dataclass(frozen=True)
class ShardSample(ByteSource):
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
        return io.BytesIO(_fetch_bytes(self))


@lru_cache(maxsize=2)  # a video is opened once to count its frames, and again for those that are wanted
def _fetch_bytes(sample: ShardSample) -> bytes:
    try:
        content = read_byte_range(sample.shard, sample.offset, sample.size)
    except OSError as error:
        raise VideoError(f"{sample}: {(error.strerror or 'cannot be read').lower()}") from None
    if len(content) < sample.size:
        raise VideoError(f"{sample}: {len(content)} of its {sample.size} bytes are there; the shard is truncated")
    if zlib.crc32(content) != sample.crc32:
        raise VideoError(f"{sample}: its bytes are not those that were written; the shard is damaged")
    return content


class ShardDataset(VideoDataset):
    """Videos in shards, in the order of the set that they were made of.

    root: the folder or the address. names: of its tar files. size: of the list, in bytes.
    indices: numbers of those that are taken; None is all. Labels are numbered alike whichever are.
    """

    def __init__(
        self, root: str, shard_files: Sequence[str], list_bytes: int, indices: np.ndarray | None = None
    ) -> None:
        self.root = PurePath(root)
        self._root, self._shard_files, self._list_bytes, self._indices = root, shard_files, list_bytes, indices

    def __len__(self) -> int:
        return len(self._table) if self._indices is None else len(self._indices)

    def __getstate__(self) -> dict[str, Any]:
        """Without what another process on this machine maps for itself."""
        spared = ("labels", "classes", "csv_rows", "indices_by_shard", "_all_labels") + ("_table",) * (not is_url(self._root))
        return {name: value for name, value in vars(self).items() if name not in spared}

    def open_video(self, i: int) -> VideoReader:
        return open_video_file(self._sample(i))

    def name(self, i: int) -> str:
        sample = self._sample(i)
        return join_path(self._root, f"{sample.path}#{sample.crc32:08x}")

    @cached_property
    def indices_by_shard(self) -> list[np.ndarray]:
        """The numbers (in this set) of the videos in each shard, in the order in which they lie there."""
        shard, offset = (self._select(self._table[name].to_numpy()) for name in ("shard", "offset"))
        order = np.lexsort((offset, shard))
        return [part for part in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1) if len(part)]

    @cached_property
    def labels(self) -> dict[str, np.ndarray]:
        numbers, _ = self._all_labels
        return {} if numbers is None else {DEFAULT_TARGET: self._select(numbers)}

    @cached_property
    def classes(self) -> dict[str, list[str]]:
        numbers, names = self._all_labels
        return {} if numbers is None else {DEFAULT_TARGET: names}

    @cached_property
    def csv_rows(self) -> list[dict[str, str]]:
        """All columns of labels.csv, a dict for each video."""
        names = [name for name in self._table.column_names if name.startswith(_LABEL_PREFIX)]
        table = self._table.select(["path", *names])
        some = table if self._indices is None else table.take(self._indices)
        plain = some.rename_columns(["path", *(name.removeprefix(_LABEL_PREFIX) for name in names)])
        return plain.to_pylist()

    def select_split(self, split: str, fold: int | None) -> "ShardDataset":
        """Those of a split by the columns that `open_list` knows."""
        index = join_path(self._root, SHARD_INDEX_FILE)
        columns = [
            name.removeprefix(_LABEL_PREFIX) for name in self._table.column_names if name.startswith(_LABEL_PREFIX)
        ]
        folds, _ = self._distinct_rows(["fold"])
        column, values = find_split_column(index, [dict.fromkeys(columns, "") | row for row in folds], split, fold)
        rows, of = self._distinct_rows([column])
        wanted = np.isin(of, select_rows(index, rows, column, values))
        return ShardDataset(self._root, self._shard_files, self._list_bytes, np.flatnonzero(wanted))

    @cached_property
    def _table(self) -> pa.Table:
        return _read_sample_list(self._root, self._list_bytes)

    @cached_property
    def _all_labels(self) -> tuple[np.ndarray | None, list[str]]:
        """The number of each video's class, whichever are taken, and the classes' names; None where none is known."""
        rows, of = self._distinct_rows(["class", "label"])
        labels, classes = parse_labels(self.root / SHARD_INDEX_FILE, rows)
        return (None if labels is None else np.asarray(labels, np.int64)[of]), classes

    def _distinct_rows(self, columns: Sequence[str]) -> tuple[list[dict[str, str]], np.ndarray]:
        """The rows that differ in these columns, of those that are there; and which of them each video has."""
        there = [name for name in columns if _LABEL_PREFIX + name in self._table.column_names]
        if not there:
            return [{}], np.zeros(len(self._table), np.int64)
        found = [self._table[_LABEL_PREFIX + name].combine_chunks() for name in there]
        codes = np.stack([column.indices.to_numpy(zero_copy_only=False) for column in found], 1)
        kinds, of = np.unique(codes, axis=0, return_inverse=True)
        texts = [column.dictionary.to_pylist() for column in found]
        rows = [{name: text[c] for name, text, c in zip(there, texts, kind, strict=True)} for kind in kinds]
        return rows, of.reshape(-1)

    def _select(self, values: np.ndarray) -> np.ndarray:
        return values if self._indices is None else values[self._indices]

    def _sample(self, i: int) -> ShardSample:
        place = i if self._indices is None else int(self._indices[i])
        row = {name: self._table[name][place].as_py() for name in SAMPLE_SCHEMA.names}
        where = (row[name] for name in ("path", "offset", "size", "crc32"))
        return ShardSample(join_path(self._root, self._shard_files[row["shard"]]), sample_key(row["index"]), *where)


def open_shard_dataset(root: str, *, split: str | None = None, fold: int | None = None) -> ShardDataset:
    """The videos of a folder of shards, or of an address, or those of a split by the columns that `open_list` knows."""
    index = join_path(root, SHARD_INDEX_FILE)
    found = read_shard_index(root)
    if found is None:
        raise StillmotionError(f"{index}: no such file; a folder of shards is made by `prepare --format shards`")
    try:
        videos = ShardDataset(root, [str(shard["name"]) for shard in found["shards"]], int(found["list_bytes"]))
        if len(videos) == 0:
            raise StillmotionError(f"{index}: no videos in these shards; prepare them again")
    except (KeyError, TypeError, ValueError) as error:
        raise StillmotionError(f"{index}: no index of shards ({error!r}); prepare them again") from None
    return videos if split is None else videos.select_split(split, fold)


def write_sample_list(path: str, samples: Sequence[dict[str, Any]]) -> None:
    """Writes the list of a set's videos, each with what `PLACE` names and its row of labels.csv, to a file."""
    ordered = sorted(samples, key=lambda sample: sample["index"])
    columns = {field.name: pa.array([one[field.name] for one in ordered], field.type) for field in SAMPLE_SCHEMA}
    for name in dict.fromkeys(name for one in ordered for name in one["row"]):
        texts = pa.array([one["row"].get(name, "") for one in ordered], pa.string())
        columns[_LABEL_PREFIX + name] = texts.dictionary_encode()
    table = pa.table(columns)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, len(table)))


def _read_sample_list(root: str, list_bytes: int) -> pa.Table:
    """The list of a folder, mapped into memory, or of an address."""
    place = join_path(root, SAMPLE_LIST_FILE)
    again = "prepare the shards again"
    try:
        source = pa.BufferReader(read_byte_range(place)) if is_url(root) else pa.memory_map(place)
        if source.size() != list_bytes:
            raise StillmotionError(
                f"{place} has {source.size()} bytes, and {SHARD_INDEX_FILE} says {list_bytes}; {again}"
            )
        table = pa.ipc.open_file(source).read_all()
    except OSError as error:
        raise StillmotionError(f"{place}: {os.strerror(error.errno or 0).lower()}; {again}") from None
    except pa.ArrowException as error:
        raise StillmotionError(f"{place} is torn or damaged ({str(error).splitlines()[0]}); {again}") from None
    if table.schema.names[: len(SAMPLE_SCHEMA.names)] != SAMPLE_SCHEMA.names:
        raise StillmotionError(f"{place}: no list of videos in shards; {again}")
    return table


def read_shard_index(root: str) -> dict[str, Any] | None:
    """What shards.json says; None where there is none."""
    index = join_path(root, SHARD_INDEX_FILE)
    try:
        found = json.loads(read_byte_range(index))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StillmotionError(f"{index}: {error.strerror or 'cannot be read'}") from None
    except ValueError as error:
        raise StillmotionError(f"{index} is torn or damaged ({error}); prepare the shards again") from None
    if not isinstance(found, dict) or found.get("version") != SHARD_FORMAT_VERSION:
        raise StillmotionError(f"{index}: no index of shards of version {SHARD_FORMAT_VERSION}; prepare them again")
    return found
