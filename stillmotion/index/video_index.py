"""The search index of a folder of videos: its segments, vectors, thumbnails and nearest neighbors."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.index.locations import default_index_dir, is_remote_uri, resolve_uri
from stillmotion.index.storage.lance_connection import wrap_read_errors
from stillmotion.index.storage.lance_tables import IndexMetadata, IndexTables
from stillmotion.index.storage.segment_rows import METADATA_COLUMNS
from stillmotion.index.video_segments import VectorName, VideoSegment, VideoSegmentConfig
from stillmotion.utils.formatting import format_count
from stillmotion.utils.typed_config import from_dict

if TYPE_CHECKING:
    from stillmotion.index.search.backends import IVF, BruteForce, SearchResult
    from stillmotion.index.search.calibration import Calibration
    from stillmotion.index.search.query import Query


class VideoIndex:
    """The segments of a folder of videos, with an appearance and a motion vector each. `VideoIndex.open` opens one.

    Args:
        uri: Folder or LanceDB URI of the index.
        tables: Its tables.

    Attributes:
        videos_dir: The folder that was indexed.
        local_dir: Folder of the index; for a remote one, the folder on this machine for what belongs to it.
        encoder_spec: Spec of the encoder that the index was built with.
    """

    def __init__(self, uri: str, tables: IndexTables) -> None:
        self.uri, self._tables = uri, tables
        self.videos_dir = Path(os.fsdecode(tables.metadata.videos.encode("utf-8", "surrogateescape")))
        self.local_dir = default_index_dir(self.videos_dir) if is_remote_uri(uri) else Path(uri)
        self.encoder_spec = tables.metadata.encoder

    @classmethod
    def open(cls, folder: str | Path) -> "VideoIndex":
        """Open an existing index.

        Args:
            folder: Folder or LanceDB URI of the index, or a folder of videos whose index lies in the default folder.

        Raises:
            StillmotionError: If there is no index, or it cannot be read.
        """
        for uri in (resolve_uri(folder), resolve_uri(default_index_dir(folder))):
            tables = IndexTables.open(uri)
            if tables is not None:
                return cls(uri, tables)
        raise StillmotionError(
            f"{folder} is not an index and no index was built for it; run: stillmotion index {folder}"
        )

    @property
    def metadata(self) -> IndexMetadata:
        """What the index was built with."""
        return self._tables.metadata

    @property
    def segmentation(self) -> VideoSegmentConfig:
        """How its videos were split into segments.

        Raises:
            StillmotionError: If the index does not say so.
        """
        settings = self._tables.metadata.settings
        return from_dict(VideoSegmentConfig, settings.get("segmentation"), f"{self.uri}: segmentation")

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self._tables)

    def segments(self) -> list[VideoSegment]:
        """Return all segments, ordered by path and start."""
        return list(self._brute_force.segments)

    def summary(self) -> str:
        """Return a line with the number of segments and videos and the place of the index."""
        num_videos = len({segment.path for segment in self.segments()})
        return f"{format_count(len(self), 'segment')} of {format_count(num_videos, 'video')} in {self.uri}"

    def segment(self, id: str) -> VideoSegment:
        """Return a segment; KeyError if none has this id."""
        if not self._is_large:
            return self._brute_force.segments[self._brute_force.positions[id]]
        return VideoSegment(**self._row(id, METADATA_COLUMNS))

    def video_path(self, id: str) -> Path:
        """Return the path of a segment's video; the file may have been deleted since."""
        path = self.segment(id).path
        plain = self.videos_dir / path
        if "\\x" in path and not plain.exists():  # a name that is not UTF-8
            return self.videos_dir / os.fsdecode(path.encode().decode("unicode_escape").encode("latin-1", "replace"))
        return plain

    def thumbnail(self, id: str) -> bytes:
        """Return a segment's thumbnail as animated WebP; KeyError if no segment has this id."""
        return self._row(id, ["thumbnail"])["thumbnail"]

    def vectors(self, vector_name: VectorName) -> np.ndarray:
        """Return the unit vectors of all segments, float32 (n, D), in the order of `segments`."""
        with wrap_read_errors(self.uri):
            return self._brute_force.vectors(vector_name).numpy()

    def motion_fields(self) -> np.ndarray | None:
        """Return the motion fields of all segments, int8 (n, F), in the order of `segments`; None without."""
        with wrap_read_errors(self.uri):
            return self._brute_force.fields

    def failed_videos(self) -> dict[str, str]:
        """Return the videos that could not be read, with the reasons."""
        with wrap_read_errors(self.uri):
            videos = sorted(self._tables.completed_videos().items())
        return {path: video.failure for path, video in videos if video.failure}

    def neighbors(
        self, query: "str | Query", *, motion_weight: float = 0.5, top_k: int = 12, exclude_same_video: bool = True
    ) -> "list[SearchResult]":
        """Find the most similar segments.

        Up to 100,000 segments are compared one by one; more are searched by LanceDB's IVF index.

        Args:
            query: Id of a segment of the index, or a query.
            motion_weight: Weight w: similarity is (1 - w) times the cosine by appearance plus w times that by motion.
            top_k: Number of results.
            exclude_same_video: Leave out all segments of the query's video; otherwise only the segment itself.

        Returns:
            The results, best first.

        Raises:
            KeyError: If no segment has this id.
            StillmotionError: If the query does not fit the index.
        """
        from stillmotion.index.search.backends import check_query

        backend = self._ivf if self._is_large else self._brute_force
        with wrap_read_errors(self.uri):
            vectors = backend.query_of(query) if isinstance(query, str) else query
            check_query(vectors, self._tables, motion_weight)
            vectors = vectors if exclude_same_video else replace(vectors, video_path=None)
            exclude_id = query if isinstance(query, str) else None
            results = backend.neighbors(vectors, motion_weight=motion_weight, top_k=top_k, exclude_id=exclude_id)
            return [self._calibration.annotate(result) for result in results]

    def _row(self, id: str, columns: Sequence[str]) -> dict[str, Any]:
        with wrap_read_errors(self.uri):
            rows = self._tables.rows_by_id([id], columns).select(list(columns)).to_pylist()
        if not rows:
            raise KeyError(id)
        return rows[0]

    @cached_property
    def _is_large(self) -> bool:
        from stillmotion.index.search import backends

        return len(self._tables) >= backends.IVF_MIN_SEGMENTS

    @cached_property
    def _brute_force(self) -> "BruteForce":
        from stillmotion.index.search.backends import BruteForce

        with wrap_read_errors(self.uri):
            return BruteForce(self._tables)

    @cached_property
    def _calibration(self) -> "Calibration":
        from stillmotion.index.search.calibration import Calibration

        return Calibration(self._tables)

    @cached_property
    def _ivf(self) -> "IVF":
        from stillmotion.index.search.backends import IVF

        return IVF(self._tables)
