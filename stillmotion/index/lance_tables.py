"""The two LanceDB tables of an index: its moments, and the videos that are done with.

`videos` says of every video what content was looked at, and why it was passed over where it was. Its schema says what
the index was made with. A video is done when it stands there; its moments are stored before.
Every change is one commit of LanceDB's, which is whole or has not happened.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

os.environ.setdefault("LANCEDB_LOG", "error")  # read when it is imported: it warns of cells that it splits

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree, IvfSq

from stillmotion.errors import StillmotionError
from stillmotion.index.video_segments import VideoSegment
from stillmotion.utils.files import report_disk_errors

FORMAT_VERSION = 2
VectorName = Literal["appearance", "motion"]
VECTOR_NAMES: tuple[VectorName, ...] = ("appearance", "motion")
METADATA_COLUMNS = ("id", "path", "start", "end", "duration")
_METADATA_KEY = "stillmotion"
_MAX_SQL_VALUES = 1000  # values named in one condition
_IVF_SAMPLE_RATE, _IVF_MAX_ITERATIONS = (
    32,
    20,
)  # vectors a cell that cells are learned from, which are held in memory, and rounds of that
_KEEP_VERSIONS_FOR = timedelta(days=1)  # earlier versions, which those may still read who have the index open
# What LanceDB raises of a table that it cannot read or write; OSError is a disk's.
_LANCE_ERRORS = (RuntimeError, ValueError, OSError, pa.ArrowException)


@dataclass(frozen=True)
class IndexMetadata:
    """What an index was made with.

    encoder: its full text. digest: of its weights and of how it is shown moments. videos: the folder, in full.
    settings: of the cutting and of what is stored.
    """

    encoder: str
    digest: str
    videos: str
    settings: Mapping[str, Any]
    format: int = FORMAT_VERSION


class SegmentRow(NamedTuple):
    """A moment with what is stored of it: unit vectors, and a moving thumbnail as WebP."""

    segment: VideoSegment
    fingerprint: str
    appearance: np.ndarray
    motion: np.ndarray
    thumbnail: bytes


class CompletedVideo(NamedTuple):
    """A video that was looked at. reason: why it was passed over; empty of one that was read."""

    path: str
    fingerprint: str
    duration: float
    failure: str = ""


class IndexTables:
    """The tables at an address; `open` and `create` make one. moments: LanceDB's own; None while there are none."""

    def __init__(self, database: Any, metadata: IndexMetadata) -> None:
        self._database, self.metadata = database, metadata
        self._videos = database.open_table("videos")
        self.segments: Any = _open_table(database, "segments")

    @classmethod
    def open(cls, uri: str) -> "IndexTables | None":
        """Those that lie there; None where there are none. What cannot be read is a StillmotionError."""
        with wrap_read_errors(uri):
            database = lancedb.connect(uri)
            videos = _open_table(database, "videos")
            if videos is None:
                return None
            said = json.loads((videos.schema.metadata or {}).get(_METADATA_KEY.encode(), b"{}"))
            if not isinstance(said, dict) or said.get("format") != FORMAT_VERSION:
                raise StillmotionError(f"{uri} is no index of this version's format; delete it and index again")
            return cls(database, IndexMetadata(**said))

    @classmethod
    def create(cls, uri: str, metadata: IndexMetadata) -> "IndexTables":
        """Empty ones."""
        with wrap_write_errors(uri):
            database = lancedb.connect(uri)
            fields = [(name, pa.string()) for name in ("path", "fingerprint", "failure")]
            schema = pa.schema([*fields, ("duration", pa.float64())], {_METADATA_KEY: json.dumps(asdict(metadata))})
            _create_table(database, "videos", schema=schema)
            if "segments" in _table_names(database):
                database.drop_table("segments")
            return cls(database, metadata)

    def __len__(self) -> int:
        return 0 if self.segments is None else self.segments.count_rows()

    def vector_dim(self, vector_name: VectorName) -> int:
        """Channels of the vectors of a part; 0 where there are none."""
        if self.segments is None or vector_name not in self.segments.schema.names:
            return 0
        return self.segments.schema.field(vector_name).type.list_size

    def completed_videos(self) -> dict[str, CompletedVideo]:
        """The videos that were looked at, by path."""
        return {row["path"]: CompletedVideo(**row) for row in self._videos.to_arrow().to_pylist()}

    def stored_fingerprints(self) -> dict[str, dict[str, str]]:
        """The fingerprints of the stored moments by id, by path; also of videos that are not done."""
        found: dict[str, dict[str, str]] = {}
        for batch in self.iter_batches(["id", "path", "fingerprint"]):
            for id, path, fingerprint in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                found.setdefault(path, {})[id] = fingerprint
        return found

    def segment_metadata(self) -> pa.Table:
        """Everything of the moments but vectors and thumbnails, by path and then by time."""
        if self.segments is None:
            return pa.table({name: [] for name in METADATA_COLUMNS})
        return pa.Table.from_batches(self.iter_batches(METADATA_COLUMNS)).sort_by(
            [("path", "ascending"), ("start", "ascending")]
        )

    def iter_batches(self, columns: Sequence[str], where: str | None = None) -> Iterator[pa.RecordBatch]:
        """These columns of the moments, some rows at a time."""
        if self.segments is None:
            return
        asked = self.segments.search().select(list(columns))
        yield from (asked.where(where) if where is not None else asked).to_batches()

    def rows_by_id(self, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """These columns of some moments, in the order of the ids; those that are not there are left out."""
        wanted = list(dict.fromkeys(["id", *columns]))
        parts = [batch for some in _sql_value_lists(ids) for batch in self.iter_batches(wanted, f"id IN ({some})")]
        if not parts:
            return pa.table({name: [] for name in wanted})
        found = pa.Table.from_batches(parts)
        place = {id: number for number, id in enumerate(found["id"].to_pylist())}
        return found.take([place[id] for id in ids if id in place])

    def commit(self, rows: Sequence[SegmentRow], videos: Sequence[CompletedVideo]) -> None:
        """Store moments, and then that videos are done."""
        self.add_segments(rows)
        self.mark_completed(videos)

    def add_segments(self, rows: Sequence[SegmentRow]) -> None:
        """Store moments, all or none."""
        if rows:
            self.add_arrow(to_arrow(rows))

    def add_arrow(self, content: pa.Table) -> None:
        """Store moments that are a table of `arrow`, all or none."""
        if not len(content):
            return
        with wrap_write_errors(self._database.uri):
            if self.segments is None:
                self.segments = _create_table(self._database, "segments", data=content)
            else:
                self.segments.add(content)

    def mark_completed(self, videos: Sequence[CompletedVideo]) -> None:
        """Write down that videos are done, in place of what was said before; those passed over have no moments."""
        if not videos:
            return
        self.delete_segments("path", [video.path for video in videos if video.failure])
        content = pa.Table.from_pylist([video._asdict() for video in videos], self._videos.schema)
        with wrap_write_errors(self._database.uri):
            merge = self._videos.merge_insert("path").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(content)

    def unmark_completed(self, paths: Iterable[str]) -> None:
        """Take out that videos are done."""
        with wrap_write_errors(self._database.uri):
            for some in _sql_value_lists(paths):
                self._videos.delete(f"path IN ({some})")

    def delete_segments(self, column: Literal["id", "path"], values: Iterable[str]) -> None:
        """Take out moments by their ids or by their paths."""
        if self.segments is not None:
            with wrap_write_errors(self._database.uri):
                for some in _sql_value_lists(values):
                    self.segments.delete(f"{column} IN ({some})")

    def compact(self, *, build_ivf: bool) -> None:
        """Join the small files that commits leave. cells: keep an index of the vectors by cells, for many moments."""
        with wrap_write_errors(self._database.uri):
            for table in (self._videos, self.segments):
                if table is not None:
                    table.optimize(
                        cleanup_older_than=_KEEP_VERSIONS_FOR
                    )  # which takes new moments into their cells, too
            if build_ivf and self.segments is not None:
                self._create_vector_indexes(self.segments)

    def _create_vector_indexes(self, segments: Any) -> None:
        indexed = {name for index in segments.list_indices() for name in index.columns}
        wanted: dict[str, Any] = {"id": BTree()}
        for part in (part for part in VECTOR_NAMES if self.vector_dim(part)):
            wanted[part] = IvfSq(
                distance_type="cosine", sample_rate=_IVF_SAMPLE_RATE, max_iterations=_IVF_MAX_ITERATIONS
            )
        for name in wanted.keys() - indexed:
            segments.create_index(name, config=wanted[name])


@contextmanager
def wrap_read_errors(uri: str) -> Iterator[None]:
    """What LanceDB cannot read meanwhile is one line."""
    try:
        yield
    except _LANCE_ERRORS as error:
        raise StillmotionError(
            f"{uri} cannot be read as an index ({_first_line(error)}); delete it and index again"
        ) from None


@contextmanager
def wrap_write_errors(uri: str) -> Iterator[None]:
    """What LanceDB cannot write meanwhile is one line."""
    try:
        with report_disk_errors(uri):
            yield
    except _LANCE_ERRORS as error:
        raise StillmotionError(f"cannot write to {uri}: {_first_line(error)}; choose another --out") from None


def _first_line(error: BaseException) -> str:
    words = (
        str(error).strip().partition("\n")[0].partition(", /")[0]
    )  # behind which a line of LanceDB's source is named
    return words[:300] or type(error).__name__


def _table_names(database: Any) -> list[str]:
    return list(database.list_tables().tables)


def _open_table(database: Any, name: str) -> Any:
    """A table; None where there is none, or where it was killed before its first commit."""
    if name not in _table_names(database):
        return None
    try:
        return database.open_table(name)
    except ValueError as error:
        if "was not found" in str(error):
            return None
        raise


def _create_table(database: Any, name: str, **content: Any) -> Any:
    """A new table, in the place of one that was never finished."""
    return database.create_table(name, mode="overwrite" if name in _table_names(database) else "create", **content)


def sql_quote(value: str | None) -> str:
    """A text as SQL has it."""
    return "'" + (value or "").replace("'", "''") + "'"


def _sql_value_lists(values: Iterable[str]) -> Iterator[str]:
    """Values as SQL has them, so many at a time."""
    listed = [sql_quote(value) for value in values]
    for start in range(0, len(listed), _MAX_SQL_VALUES):
        yield ", ".join(listed[start : start + _MAX_SQL_VALUES])


def to_arrow(rows: Sequence[SegmentRow]) -> pa.Table:
    """Moments as the table has them."""
    columns: dict[str, Any] = {name: [getattr(row.segment, name) for row in rows] for name in METADATA_COLUMNS}
    columns["fingerprint"] = [row.fingerprint for row in rows]
    for part in VECTOR_NAMES:
        vectors = np.stack([getattr(row, part) for row in rows]).astype(np.float32)
        if vectors.shape[1]:
            columns[part] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    columns["thumbnail"] = pa.array([row.thumbnail for row in rows], pa.binary())
    return pa.table(columns)
