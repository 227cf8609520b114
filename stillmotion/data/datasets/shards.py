"""Read videos out of indexed tar shards, local or remote.

A folder or URL holds shard-000000.tar, …, shards.json, which names them, and shards.arrow, which lists where each video
is. shards.json has the hash of the list and one of its own. A video is read by its byte range and checked by its hash.
Its name is its path in the original data set followed by the hash, so that cached features of a video are not taken for
those of another. The list is memory-mapped from a local disk, once for all processes of a machine.
"""

import io
import json
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
from stillmotion.data.video.remote import ByteSource, check_regular_file, is_url, join_path, read_byte_range
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.utils.files import join_inside
from stillmotion.utils.hashing import hash_bytes

SHARD_INDEX_FILE, SAMPLE_LIST_FILE = "shards.json", "shards.arrow"
SHARD_FORMAT_VERSION = 4
# Each video of the list, in the order of the data set: its index, its shard, and where it is in it.
SAMPLE_SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("shard", pa.int32()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("hash", pa.string()),
        ("path", pa.large_string()),
        ("frames", pa.int32()),
        ("fps", pa.float64()),
    ]
)
_LABEL_PREFIX = "label:"  # of the columns of labels.csv


def sample_key(index: int) -> str:
    """Key of a video in its shard.

    Args:
        index: Index of the video in the data set.
    """
    return f"{index:09d}"


def hash_sample(content: bytes) -> str:
    """Hash of a video in a shard, by which damage is found.

    Args:
        content: Bytes of the video.
    """
    return hash_bytes(content, digest_size=8)


@dataclass(frozen=True)
class ShardSample(ByteSource):
    """A video in a shard.

    Attributes:
        shard: Path or URL of the tar file.
        key: Key of the video in the shard.
        path: Path of the video in the original data set.
        offset: Offset of its bytes in the shard.
        size: Number of its bytes.
        hash: `hash_sample` of its bytes.
    """

    shard: str
    key: str
    path: str
    offset: int
    size: int
    hash: str

    def __str__(self) -> str:
        return f"{self.shard}, {self.key} ({self.path})"

    def open(self) -> BinaryIO:
        return io.BytesIO(_fetch_bytes(self))


@lru_cache(maxsize=2)  # a video is opened once to count its frames, and again to decode some
def _fetch_bytes(sample: ShardSample) -> bytes:
    try:
        content = read_byte_range(sample.shard, sample.offset, sample.size)
    except OSError as error:
        raise VideoError(f"{sample}: {(error.strerror or 'cannot be read').lower()}") from None
    if len(content) < sample.size:
        raise VideoError(f"{sample}: only {len(content)} of {sample.size} bytes exist; the shard is truncated.")
    if hash_sample(content) != sample.hash:
        raise VideoError(f"{sample}: checksum mismatch; the shard is damaged.")
    return content


class ShardDataset(VideoDataset):
    """Videos in shards, in the order of the original data set.

    Args:
        root: Folder or URL of the shards.
        shard_files: Names of the tar files.
        list_hash: Hash of the sample list.
        indices: Indices of the videos to take; None takes all. Class ids are the same for every subset.
    """

    def __init__(
        self, root: str, shard_files: Sequence[str], list_hash: str, indices: np.ndarray | None = None
    ) -> None:
        self.root = PurePath(root)
        self._root, self._shard_files, self._list_hash, self._indices = root, shard_files, list_hash, indices

    def __len__(self) -> int:
        return len(self._table) if self._indices is None else len(self._indices)

    def __getstate__(self) -> dict[str, Any]:
        """State without what another process on this machine maps into memory by itself."""
        omitted = ("labels", "classes", "csv_rows", "indices_by_shard", "_all_labels") + ("_table",) * (
            not is_url(self._root)
        )
        return {name: value for name, value in vars(self).items() if name not in omitted}

    def open_video(self, i: int) -> VideoReader:
        return open_video_file(self._sample(i))

    def name(self, i: int) -> str:
        sample = self._sample(i)
        return join_path(self._root, f"{sample.path}#{sample.hash}")

    @cached_property
    def indices_by_shard(self) -> list[np.ndarray]:  # type: ignore[override]
        shard, offset = (self._select(self._table[name].to_numpy()) for name in ("shard", "offset"))
        order = np.lexsort((offset, shard))
        return [part for part in np.split(order, np.flatnonzero(np.diff(shard[order])) + 1) if len(part)]

    @cached_property
    def labels(self) -> dict[str, np.ndarray]:  # type: ignore[override]
        labels, _ = self._all_labels
        return {} if labels is None else {DEFAULT_TARGET: self._select(labels)}

    @cached_property
    def classes(self) -> dict[str, list[str]]:  # type: ignore[override]
        labels, names = self._all_labels
        return {} if labels is None else {DEFAULT_TARGET: names}

    @cached_property
    def csv_rows(self) -> list[dict[str, str]]:  # type: ignore[override]
        names = [name for name in self._table.column_names if name.startswith(_LABEL_PREFIX)]
        table = self._table.select(["path", *names])
        selected = table if self._indices is None else table.take(self._indices)
        renamed = selected.rename_columns(["path", *(name.removeprefix(_LABEL_PREFIX) for name in names)])
        return renamed.to_pylist()

    def select_split(self, split: str, fold: int | None) -> "ShardDataset":
        """Select the videos of a split, by the columns that `open_list_dataset` knows.

        Args:
            split: Name of the split.
            fold: Fold, counted from 1; None is the first.
        """
        index = join_path(self._root, SHARD_INDEX_FILE)
        columns = [
            name.removeprefix(_LABEL_PREFIX) for name in self._table.column_names if name.startswith(_LABEL_PREFIX)
        ]
        folds, _ = self._distinct_rows(["fold"])
        column, values = find_split_column(index, [dict.fromkeys(columns, "") | row for row in folds], split, fold)
        rows, row_of_video = self._distinct_rows([column])
        wanted = np.isin(row_of_video, select_rows(index, rows, column, values))
        return ShardDataset(self._root, self._shard_files, self._list_hash, np.flatnonzero(wanted))

    @cached_property
    def _table(self) -> pa.Table:
        return _read_sample_list(self._root, self._list_hash, len(self._shard_files))

    @cached_property
    def _all_labels(self) -> tuple[np.ndarray | None, list[str]]:
        """Class id of each video of the whole list, and the class names; None if no label is known."""
        rows, row_of_video = self._distinct_rows(["class", "label"])
        labels, classes = parse_labels(join_path(self._root, SHARD_INDEX_FILE), rows)
        return (None if labels is None else np.asarray(labels, np.int64)[row_of_video]), classes

    def _distinct_rows(self, columns: Sequence[str]) -> tuple[list[dict[str, str]], np.ndarray]:
        """The different rows of these columns (of those that exist), and which of them each video has."""
        existing = [name for name in columns if _LABEL_PREFIX + name in self._table.column_names]
        if not existing:
            return [{}], np.zeros(len(self._table), np.int64)
        cells = [self._table[_LABEL_PREFIX + name].combine_chunks() for name in existing]
        codes = np.stack([column.indices.to_numpy(zero_copy_only=False) for column in cells], 1)
        distinct, row_of_video = np.unique(codes, axis=0, return_inverse=True)
        texts = [column.dictionary.to_pylist() for column in cells]
        rows = [{name: text[c] for name, text, c in zip(existing, texts, row, strict=True)} for row in distinct]
        return rows, row_of_video.reshape(-1)

    def _select(self, values: np.ndarray) -> np.ndarray:
        return values if self._indices is None else values[self._indices]

    def _sample(self, i: int) -> ShardSample:
        position = i if self._indices is None else int(self._indices[i])
        row = {name: self._table[name][position].as_py() for name in SAMPLE_SCHEMA.names}
        shard, key = join_path(self._root, self._shard_files[row["shard"]]), sample_key(row["index"])
        return ShardSample(shard, key, row["path"], row["offset"], row["size"], row["hash"])


def open_shard_dataset(root: str, *, split: str | None = None, fold: int | None = None) -> ShardDataset:
    """Open the videos of shards, or those of a split by the columns that `open_list_dataset` knows.

    Args:
        root: Folder or URL of the shards.
        split: Name of the split; None takes all videos.
        fold: Fold, counted from 1; None is the first.

    Raises:
        StillmotionError: There are no shards, or their index is damaged.
    """
    index = join_path(root, SHARD_INDEX_FILE)
    content = read_shard_index(root)
    if content is None:
        raise StillmotionError(f"{index}: no such file. Make shards with `stillmotion prepare --format shards`.")
    try:
        names = [str(shard["name"]) for shard in content["shards"]]
        dataset = ShardDataset(root, names, str(content["list_hash"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StillmotionError(f"{index}: not an index of shards ({error!r}). Prepare them again.") from None
    for name in names:
        join_inside(root, name)
    if len(dataset) == 0:
        raise StillmotionError(f"{index}: no videos in these shards. Prepare them again.")
    return dataset if split is None else dataset.select_split(split, fold)


def write_sample_list(path: str, samples: Sequence[dict[str, Any]]) -> None:
    """Write the list of the videos of all shards.

    Args:
        path: File to write.
        samples: Columns of `SAMPLE_SCHEMA` of each video, and `row`, its row of labels.csv.
    """
    ordered = sorted(samples, key=lambda sample: sample["index"])
    columns = {field.name: pa.array([sample[field.name] for sample in ordered], field.type) for field in SAMPLE_SCHEMA}
    for name in dict.fromkeys(name for sample in ordered for name in sample["row"]):
        texts = pa.array([sample["row"].get(name, "") for sample in ordered], pa.string())
        columns[_LABEL_PREFIX + name] = texts.dictionary_encode()
    table = pa.table(columns)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, len(table)))


def _read_sample_list(root: str, list_hash: str, num_shards: int) -> pa.Table:
    """The list of a folder, mapped into memory, or of a URL."""
    file = join_path(root, SAMPLE_LIST_FILE)
    remedy = "Prepare the shards again."
    try:
        if is_url(root):
            content = pa.py_buffer(read_byte_range(file))
        else:
            check_regular_file(file)
            content = pa.memory_map(file).read_buffer()
        if hash_bytes(memoryview(content)) != list_hash:
            raise StillmotionError(f"{file} is damaged (checksum mismatch with {SHARD_INDEX_FILE}). {remedy}")
        table = pa.ipc.open_file(content).read_all()
    except OSError as error:
        raise StillmotionError(f"{file}: {(error.strerror or 'cannot be read').lower()}. {remedy}") from None
    except pa.ArrowException as error:
        raise StillmotionError(f"{file} is damaged ({str(error).splitlines()[0]}). {remedy}") from None
    if table.schema.names[: len(SAMPLE_SCHEMA.names)] != SAMPLE_SCHEMA.names:
        raise StillmotionError(f"{file}: not a list of videos in shards. {remedy}")
    shards = table["shard"].to_numpy()
    if len(shards) and not 0 <= shards.min() <= shards.max() < num_shards:
        raise StillmotionError(f"{file}: names shard {shards.max()}, but {SHARD_INDEX_FILE} has {num_shards}. {remedy}")
    return table


def read_shard_index(root: str) -> dict[str, Any] | None:
    """Read shards.json.

    Args:
        root: Folder or URL of the shards.

    Returns:
        Its content; None if there is no such file.

    Raises:
        StillmotionError: The file is damaged or of another version.
    """
    index = join_path(root, SHARD_INDEX_FILE)
    try:
        content = json.loads(read_byte_range(index))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StillmotionError(f"{index}: {error.strerror or 'cannot be read'}") from None
    except ValueError as error:
        raise StillmotionError(f"{index} is damaged ({error}). Prepare the shards again.") from None
    if not isinstance(content, dict) or content.get("version") != SHARD_FORMAT_VERSION:
        raise StillmotionError(
            f"{index}: not an index of shards of version {SHARD_FORMAT_VERSION}. Prepare them again."
        )
    if content.pop("hash", None) != hash_shard_index(content):
        raise StillmotionError(f"{index} is damaged (checksum mismatch). Prepare the shards again.")
    return content


def hash_shard_index(content: dict[str, Any]) -> str:
    """Hash of the content of shards.json, which it contains itself.

    Args:
        content: The content without the hash.
    """
    return hash_bytes(json.dumps(content).encode())
