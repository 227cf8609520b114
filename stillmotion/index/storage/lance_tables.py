"""The two LanceDB tables of an index: segments, and completed videos.

Table `videos` has one row for every video that is complete: the fingerprint of its content, and the reason if it
failed. Its schema holds the index's metadata. A video's segments are stored before its row in `videos`.
Every change is one commit of LanceDB, which happens as a whole or not at all. Rows and metadata are stored with
checksums, which are compared whenever they are read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from stillmotion.errors import StillmotionError
from stillmotion.index.locations import is_remote_uri
from stillmotion.index.storage.lance_connection import (
    connect,
    create_table,
    open_table,
    sql_value_lists,
    table_names,
    wrap_read_errors,
    wrap_write_errors,
)
from stillmotion.index.storage.lance_files import store_search_index_hashes, verify_search_indexes
from stillmotion.index.storage.row_checksums import (
    SEGMENT_CHECKSUMS,
    VIDEO_CHECKSUMS,
    columns_to_read,
    verify_rows,
    with_checksums,
)
from stillmotion.index.storage.segment_rows import METADATA_COLUMNS, CompletedVideo, SegmentRow, to_arrow
from stillmotion.index.video_segments import VECTOR_NAMES
from stillmotion.utils.hashing import hash_bytes

FORMAT_VERSION = 4
_METADATA_KEY, _METADATA_CHECKSUM_KEY = "stillmotion", "stillmotion_checksum"
_IVF_SAMPLE_RATE = 32  # vectors per partition that k-means is trained on; they are held in memory
_IVF_MAX_ITERATIONS = 20
_KEEP_VERSIONS_FOR = timedelta(days=1)  # processes that have the index open may still read earlier versions


@dataclass(frozen=True)
class IndexMetadata:
    """What an index was built with.

    Attributes:
        encoder: Encoder spec.
        digest: Hash of the encoder's weights and of the settings.
        videos: Absolute path of the indexed folder.
        settings: Input of the encoder, segmentation and thumbnail size.
        format: Version of the tables' format.
    """

    encoder: str
    digest: str
    videos: str
    settings: Mapping[str, Any]
    format: int = FORMAT_VERSION


class IndexTables:
    """The tables of an index; `open` and `create` make an instance.

    Args:
        database: LanceDB connection.
        metadata: What the index was built with.

    Attributes:
        segments: LanceDB table of the segments; None while there are none.
    """

    def __init__(self, database: Any, metadata: IndexMetadata) -> None:
        self.database, self.metadata = database, metadata
        self._is_verified = False
        self._videos = database.open_table("videos")
        self.segments: Any = open_table(database, "segments")

    @classmethod
    def open(cls, uri: str) -> "IndexTables | None":
        """Open existing tables.

        Args:
            uri: Folder or LanceDB URI.

        Returns:
            The tables; None if there are none.

        Raises:
            StillmotionError: If they cannot be read or have another format.
        """
        if not is_remote_uri(uri) and not Path(uri, "videos.lance").is_dir():
            return None  # without importing LanceDB
        with wrap_read_errors(uri):
            database = connect(uri)
            videos = open_table(database, "videos")
            if videos is None:
                return None
            return cls(database, _parse_metadata(videos.schema.metadata or {}, uri))

    @classmethod
    def create(cls, uri: str, metadata: IndexMetadata) -> "IndexTables":
        """Create empty tables.

        Args:
            uri: Folder or LanceDB URI.
            metadata: What the index is built with.
        """
        with wrap_write_errors(uri):
            database = connect(uri)
            columns = [(name, pa.string()) for name in ("path", "fingerprint", "failure", *VIDEO_CHECKSUMS)]
            text = json.dumps(asdict(metadata))
            content = {_METADATA_KEY: text, _METADATA_CHECKSUM_KEY: hash_bytes(text.encode())}
            schema = pa.schema([*columns, ("duration", pa.float64())], content)
            create_table(database, "videos", schema=schema)
            if "segments" in table_names(database):
                database.drop_table("segments")
            return cls(database, metadata)

    def __len__(self) -> int:
        return 0 if self.segments is None else self.segments.count_rows()

    def vector_dim(self, vector_name: str) -> int:
        """Return the number of channels of a vector or of motion fields; 0 if there are none."""
        names = [] if self.segments is None else self.segments.schema.names
        if vector_name in names:
            return self.segments.schema.field(vector_name).type.list_size
        if f"{vector_name}_checksum" in names:
            raise StillmotionError(
                f"{self.database.uri} is damaged: it has no column {vector_name}; delete it and index again"
            )
        return 0

    def completed_videos(self) -> dict[str, CompletedVideo]:
        """Return the completed videos by path."""
        uri = self.database.uri
        with wrap_read_errors(uri):
            rows = verify_rows(self._videos.to_arrow(), VIDEO_CHECKSUMS, uri).select(CompletedVideo._fields)
            return {row["path"]: CompletedVideo(**row) for row in rows.to_pylist()}

    def stored_fingerprints(self) -> dict[str, dict[str, str]]:
        """Return the fingerprint of each stored segment by path and id, also of incomplete videos."""
        fingerprints: dict[str, dict[str, str]] = {}
        for batch in self.iter_batches(["id", "path", "fingerprint"]):
            for id, path, fingerprint in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                fingerprints.setdefault(path, {})[id] = fingerprint
        return fingerprints

    def segment_metadata(self) -> pa.Table:
        """Return ids, paths and times of all segments, ordered by path and start."""
        if self.segments is None:
            return pa.table({name: [] for name in METADATA_COLUMNS})
        return pa.Table.from_batches(self.iter_batches(METADATA_COLUMNS)).sort_by(
            [("path", "ascending"), ("start", "ascending")]
        )

    def iter_batches(self, columns: Sequence[str], where: str | None = None) -> Iterator[pa.RecordBatch]:
        """Read columns of the segments in batches, and verify them.

        Args:
            columns: Names of the columns.
            where: SQL condition.

        Raises:
            StillmotionError: If they cannot be read, or do not match their checksums.
        """
        if self.segments is None:
            return
        uri = self.database.uri
        with wrap_read_errors(uri):
            rows = self.segments.search().select(columns_to_read(columns, SEGMENT_CHECKSUMS))
            batches = iter((rows.where(where) if where is not None else rows).to_batches())
        while True:
            with wrap_read_errors(uri):
                batch = next(batches, None)
                if batch is None:
                    return
                verified = verify_rows(batch, SEGMENT_CHECKSUMS, uri).select(list(columns))
            yield verified

    def select_verified(self, search: Any, columns: Sequence[str]) -> pa.Table:
        """Run a search of the segments, and verify its rows.

        Args:
            search: LanceDB query.
            columns: Names of the columns.
        """
        self._verify_search_indexes()
        with wrap_read_errors(self.database.uri):
            rows = search.select([*columns_to_read(columns, SEGMENT_CHECKSUMS), "_distance"]).to_arrow()
        return verify_rows(rows, SEGMENT_CHECKSUMS, self.database.uri)

    def rows_by_id(self, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """Read columns of some segments.

        Args:
            ids: Ids of the segments; unknown ones are skipped.
            columns: Names of the columns.

        Returns:
            The rows in the order of the ids.
        """
        self._verify_search_indexes()
        names = list(dict.fromkeys(["id", *columns]))
        batches = [batch for some in sql_value_lists(ids) for batch in self.iter_batches(names, f"id IN ({some})")]
        if not batches:
            return pa.table({name: [] for name in names})
        rows = pa.Table.from_batches(batches)
        position = {id: number for number, id in enumerate(rows["id"].to_pylist())}
        return rows.take([position[id] for id in ids if id in position])

    def commit(self, rows: Sequence[SegmentRow], videos: Sequence[CompletedVideo]) -> None:
        """Store segments, then mark videos as completed.

        Args:
            rows: Segments.
            videos: Videos all of whose segments are stored with these rows or were before.
        """
        self.add_segments(rows)
        self.mark_completed(videos)

    def add_segments(self, rows: Sequence[SegmentRow]) -> None:
        """Store segments, all or none."""
        if rows:
            self.add_arrow(to_arrow(rows))

    def add_arrow(self, content: pa.Table) -> None:
        """Store segments given as a table of `to_arrow`, all or none."""
        if not len(content):
            return
        with wrap_write_errors(self.database.uri):
            if self.segments is None:
                self.segments = create_table(self.database, "segments", data=content)
            else:
                self.segments.add(content)

    def mark_completed(self, videos: Sequence[CompletedVideo]) -> None:
        """Mark videos as completed, replacing earlier rows; segments of failed videos are deleted."""
        if not videos:
            return
        self.delete_segments("path", [video.path for video in videos if video.failure])
        rows = with_checksums(pa.Table.from_pylist([video._asdict() for video in videos]), VIDEO_CHECKSUMS)
        content = rows.select(self._videos.schema.names).cast(self._videos.schema)
        with wrap_write_errors(self.database.uri):
            merge = self._videos.merge_insert("path").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(content)

    def unmark_completed(self, paths: Iterable[str]) -> None:
        """Mark videos as incomplete."""
        with wrap_write_errors(self.database.uri):
            for some in sql_value_lists(paths):
                self._videos.delete(f"path IN ({some})")

    def delete_segments(self, column: Literal["id", "path"], values: Iterable[str]) -> None:
        """Delete segments.

        Args:
            column: Column to select by.
            values: Its values.
        """
        if self.segments is not None:
            with wrap_write_errors(self.database.uri):
                for some in sql_value_lists(values):
                    self.segments.delete(f"{column} IN ({some})")

    def compact(self, *, build_ivf: bool) -> None:
        """Merge the small files that commits leave.

        Args:
            build_ivf: Build LanceDB's IVF index of the vectors, for many segments.
        """
        with wrap_write_errors(self.database.uri):
            for table in (self._videos, self.segments):
                if table is not None:
                    table.optimize(cleanup_older_than=_KEEP_VERSIONS_FOR)  # also adds new segments to the IVF index
            if build_ivf and self.segments is not None:
                self._create_vector_indexes(self.segments)
            store_search_index_hashes(self.database.uri)

    def _verify_search_indexes(self) -> None:
        """Verify the files that find rows, once; those of a table that a running `index` changes may be new."""
        if not self._is_verified:
            verify_search_indexes(self.database.uri)
            self._is_verified = True

    def _create_vector_indexes(self, segments: Any) -> None:
        from lancedb.index import BTree, IvfSq

        indexed = {name for index in segments.list_indices() for name in index.columns}
        configs: dict[str, Any] = {"id": BTree()}
        for vector_name in (name for name in VECTOR_NAMES if self.vector_dim(name)):
            configs[vector_name] = IvfSq(
                distance_type="cosine", sample_rate=_IVF_SAMPLE_RATE, max_iterations=_IVF_MAX_ITERATIONS
            )
        for name in configs.keys() - indexed:
            segments.create_index(name, config=configs[name])


def _parse_metadata(stored: Mapping[bytes, bytes], uri: str) -> IndexMetadata:
    text = stored.get(_METADATA_KEY.encode(), b"{}")
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT_VERSION:
        raise StillmotionError(f"{uri} is not an index of this version's format; delete it and index again")
    if stored.get(_METADATA_CHECKSUM_KEY.encode()) != hash_bytes(text).encode():
        raise StillmotionError(f"{uri} is damaged: its metadata do not match their checksum; delete it and index again")
    if set(data) != {field.name for field in fields(IndexMetadata)} or not isinstance(data["settings"], dict):
        raise StillmotionError(f"{uri} lacks settings of an index; delete it and index again")
    return IndexMetadata(**data)
