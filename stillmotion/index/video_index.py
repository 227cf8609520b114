"""An index of moments: what is in it, and what is near by look and by motion."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.errors import StillmotionError
from stillmotion.index import search_backends
from stillmotion.index.lance_tables import METADATA_COLUMNS, IndexMetadata, IndexTables, VectorName, wrap_read_errors
from stillmotion.index.locations import default_index_dir, is_remote_uri, resolve_uri
from stillmotion.index.query import Query
from stillmotion.index.search_backends import SearchResult, check_query
from stillmotion.index.video_segments import VideoSegment


class VideoIndex:
    """The moments of a folder of videos; `open` gives one.

    local_dir: where it lies; of one at an address, where what belongs to it is kept on this machine.
    videos_dir: the folder that was indexed. encoder: the text of what it was made with.
    """

    def __init__(self, uri: str, tables: IndexTables) -> None:
        self.uri, self._tables = uri, tables
        self.videos_dir = Path(os.fsdecode(tables.metadata.videos.encode("utf-8", "surrogateescape")))
        self.local_dir = default_index_dir(self.videos_dir) if is_remote_uri(uri) else Path(uri)
        self.encoder_spec = tables.metadata.encoder

    @classmethod
    def open(cls, folder: str | Path) -> "VideoIndex":
        """The index that lies in a folder or at an address, or that of a folder of videos at its default place."""
        for place in (resolve_uri(folder), resolve_uri(default_index_dir(folder))):
            if is_remote_uri(place) or Path(place).is_dir():
                tables = IndexTables.open(place)
                if tables is not None:
                    return cls(place, tables)
        raise StillmotionError(f"{folder} is no index and has none; make one: stillmotion index {folder}")

    @property
    def metadata(self) -> IndexMetadata:
        """What it was made with."""
        return self._tables.metadata

    def __len__(self) -> int:
        return len(self._tables)

    def segments(self) -> list[VideoSegment]:
        """All of them, by path and then by start."""
        return list(self._brute_force.segments)

    def segment(self, id: str) -> VideoSegment:
        """One of them; KeyError where there is none of this id."""
        if not self._is_large:
            return self._brute_force.segments[self._brute_force.positions[id]]
        return VideoSegment(**self._row(id, METADATA_COLUMNS))

    def video_path(self, id: str) -> Path:
        """The video of a moment, in full; it may be gone."""
        path = self.segment(id).path
        plain = self.videos_dir / path
        if "\\x" in path and not plain.exists():  # a name that is not UTF-8
            return self.videos_dir / os.fsdecode(path.encode().decode("unicode_escape").encode("latin-1", "replace"))
        return plain

    def thumbnail(self, id: str) -> bytes:
        """A small animated WebP of a moment; KeyError where there is none of this id."""
        return self._row(id, ["thumbnail"])["thumbnail"]

    def vectors(self, vector_name: VectorName) -> np.ndarray:
        """The unit vectors of all moments by look or by motion, float32 (n, D), in the order of `segments`."""
        with wrap_read_errors(self.uri):
            return self._brute_force.vectors(vector_name).numpy()

    def failed_videos(self) -> dict[str, str]:
        """The videos that could not be read, and why."""
        with wrap_read_errors(self.uri):
            return {
                path: done.failure for path, done in sorted(self._tables.completed_videos().items()) if done.failure
            }

    def neighbors(
        self, query: str | Query, *, motion_weight: float = 0.5, top_k: int = 12, exclude_same_video: bool = True
    ) -> list[SearchResult]:
        """The moments most alike to one of the index, by its id, or to a query; best first.

        motion_weight: 0 by look alone, 1 by motion alone; between them similarity is (1 - mix)·look + mix·motion, of cosines.
        exclude_same_video: leave out all moments of the query's own video; else, of a moment of the index, itself alone.
        Below 100,000 moments every one is compared; above, candidates by look and by motion are, of LanceDB's cells.
        """
        ways = self._ivf if self._is_large else self._brute_force
        with wrap_read_errors(self.uri):
            asked = ways.query_of(query) if isinstance(query, str) else query
            check_query(asked, self._tables, motion_weight)
            asked = asked if exclude_same_video else replace(asked, video_path=None)
            return ways.neighbors(
                asked, motion_weight=motion_weight, top_k=top_k, exclude_id=query if isinstance(query, str) else None
            )

    def _row(self, id: str, columns: Sequence[str]) -> dict[str, Any]:
        with wrap_read_errors(self.uri):
            found = self._tables.rows_by_id([id], columns).select(list(columns)).to_pylist()
        if not found:
            raise KeyError(id)
        return found[0]

    @cached_property
    def _is_large(self) -> bool:
        return len(self._tables) >= search_backends.IVF_MIN_SEGMENTS

    @cached_property
    def _brute_force(self) -> search_backends.BruteForce:
        with wrap_read_errors(self.uri):
            return search_backends.BruteForce(self._tables)

    @cached_property
    def _ivf(self) -> search_backends.IVF:
        return search_backends.IVF(self._tables)
