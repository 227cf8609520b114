"""The two ways to find what is near: all vectors in memory, or LanceDB's index of those that are too many for that.

Shapes: n moments, D channels; q moments of a query.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from stillmotion.errors import StillmotionError
from stillmotion.index.lance_tables import METADATA_COLUMNS, VECTOR_NAMES, IndexTables, VectorName, sql_quote
from stillmotion.index.query import Query
from stillmotion.index.video_segments import VideoSegment

IVF_MIN_SEGMENTS = 100_000  # moments from which on an index by cells is made and asked
# Candidates of each part: at least so many, so many times what is asked for, and one of so many moments: the more there
# are, the further from the best by one part lies what is best by both.
_MIN_CANDIDATES, _CANDIDATES_PER_RESULT, _CANDIDATE_FRACTION = 256, 4, 1000
_NPROBES, _REFINE_FACTOR = 40, 4  # cells that are looked into, and how many times as many are compared exactly
_MAX_QUERY_VECTORS = 8  # of a query's moments that are asked one by one


class SearchResult(NamedTuple):
    """A moment, what it was ranked by, and its cosines by look and by motion."""

    segment: VideoSegment
    similarity: float
    appearance: float
    motion: float


class BruteForce:
    """Everything but the thumbnails in memory, in the order of path and start; what is asked is compared with all."""

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables
        self.segments = [VideoSegment(**row) for row in tables.segment_metadata().to_pylist()]
        self.positions = {moment.id: number for number, moment in enumerate(self.segments)}

    def vectors(self, vector_name: VectorName) -> torch.Tensor:
        """The unit vectors (n, D) of a part; (n, 0) where there are none."""
        return self._vectors[vector_name]

    def query_of(self, id: str) -> Query:
        """A moment of the index as a query; KeyError where there is none of this id."""
        number = self.positions[id]
        look, motion = (self._vectors[part][number : number + 1].numpy() for part in VECTOR_NAMES)
        return Query(look, motion, self.segments[number].path)

    def neighbors(
        self, query: Query, *, motion_weight: float, top_k: int, exclude_id: str | None
    ) -> list[SearchResult]:
        """The `top_k` most alike, but for those of the path of the query and for the id `exclude_id`."""
        cosines = [self._cosines(part, getattr(query, part)) for part in VECTOR_NAMES]
        ranked, best = ((1 - motion_weight) * cosines[0] + motion_weight * cosines[1]).max(1)
        ranked[self._path_slices.get(query.video_path or "", slice(0, 0))] = -torch.inf
        if exclude_id is not None:
            ranked[self.positions[exclude_id]] = -torch.inf
        scores, numbers = ranked.topk(min(top_k, len(ranked)))
        return sort_results(
            SearchResult(self.segments[i], score, *(float(of[i, best[i]]) for of in cosines))
            for score, i in zip(scores.tolist(), numbers.tolist(), strict=True)
            if score > -torch.inf
        )

    def _cosines(self, part: VectorName, rows: np.ndarray) -> torch.Tensor:
        """Of all moments to those of the query, (n, q); zeros where there are no vectors."""
        return self._vectors[part] @ torch.from_numpy(np.ascontiguousarray(rows)).mT

    @cached_property
    def _vectors(self) -> dict[VectorName, torch.Tensor]:
        return {part: self._read_vectors(part) for part in VECTOR_NAMES}

    def _read_vectors(self, part: VectorName) -> torch.Tensor:
        """Vectors in the order of the moments, without a second copy in memory."""
        found = np.zeros((len(self.segments), self._tables.vector_dim(part)), np.float32)
        for batch in self._tables.iter_batches(["id", part]) if found.size else ():
            places = [self.positions[id] for id in batch["id"].to_pylist()]
            found[places] = column_to_array(batch[part])
        return torch.from_numpy(found)

    @cached_property
    def _path_slices(self) -> dict[str, slice]:
        found: dict[str, slice] = {}
        for number, moment in enumerate(self.segments):
            found[moment.path] = slice(found.get(moment.path, slice(number, 0)).start, number + 1)
        return found


class IVF:
    """The table as it lies on the disk: candidates by look and by motion from their cells, compared exactly."""

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables

    def query_of(self, id: str) -> Query:
        """As in `Scan`."""
        found = self._tables.rows_by_id([id], ["path", *self._vector_names])
        if not found.num_rows:
            raise KeyError(id)
        none = np.zeros((1, 0), np.float32)
        look, motion = (column_to_array(found[part]) if part in self._vector_names else none for part in VECTOR_NAMES)
        return Query(look, motion, found["path"][0].as_py())

    def neighbors(
        self, query: Query, *, motion_weight: float, top_k: int, exclude_id: str | None
    ) -> list[SearchResult]:
        """As in `Scan`, of the candidates of both parts."""
        limits = [f"path != {sql_quote(query.video_path)}"] * (query.video_path is not None)
        limits += [f"id != {sql_quote(exclude_id)}"] * (exclude_id is not None)
        shares = {"appearance": 1 - motion_weight, "motion": motion_weight}
        candidates: dict[str, SearchResult] = {}
        wanted = max(_MIN_CANDIDATES, _CANDIDATES_PER_RESULT * top_k, len(self._tables) // _CANDIDATE_FRACTION)
        for part in (part for part in self._vector_names if shares[part]):
            for row in getattr(query, part)[:_MAX_QUERY_VECTORS]:
                asked = self._tables.segments.search(row, vector_column_name=part).distance_type("cosine")
                asked = asked.nprobes(_NPROBES).refine_factor(_REFINE_FACTOR).limit(wanted)
                asked = asked.where(" AND ".join(limits), prefilter=True) if limits else asked
                found = asked.select([*METADATA_COLUMNS, *self._vector_names, "_distance"]).to_arrow()
                cosines = [
                    column_to_array(found[name]) @ getattr(query, name).T
                    if name in self._vector_names
                    else np.zeros((len(found), 1))
                    for name in VECTOR_NAMES
                ]
                ranked = (1 - motion_weight) * cosines[0] + motion_weight * cosines[1]
                for number, moment in enumerate(found.select(METADATA_COLUMNS).to_pylist()):
                    best = int(ranked[number].argmax())
                    similarities = (float(of[number, min(best, of.shape[1] - 1)]) for of in (ranked, *cosines))
                    candidates[moment["id"]] = SearchResult(VideoSegment(**moment), *similarities)
        return sort_results(candidates.values())[:top_k]

    @property
    def _vector_names(self) -> Sequence[VectorName]:
        return [part for part in VECTOR_NAMES if self._tables.vector_dim(part)]


def check_query(query: Query, tables: IndexTables, motion_weight: float) -> None:
    """Raises where a query is of other vectors, or where what it is to be ranked by is not there."""
    if not 0 <= motion_weight <= 1:
        raise StillmotionError(f"mix is {motion_weight}; it lies between 0, by appearance, and 1, by motion")
    shares: dict[VectorName, float] = {"appearance": 1 - motion_weight, "motion": motion_weight}
    for part, share in shares.items():
        there, given = tables.vector_dim(part), getattr(query, part).shape[1]
        if len(tables) and there != given:
            raise StillmotionError(
                f"The query has {given} {part} channels but the index has {there}; use the index's own encoder."
            )
        if len(tables) and share and not there:
            raise StillmotionError(f"{tables.metadata.encoder} sees no {part}; search by the other alone")


def sort_results(results: Iterable[SearchResult]) -> list[SearchResult]:
    """Best first; of equals, by path and start."""
    return sorted(results, key=lambda one: (-one.similarity, one.segment.path, one.segment.start))


def column_to_array(column: Any) -> np.ndarray:
    """A column of vectors, of a batch or of a table, as an array (n, D)."""
    flat = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return flat.flatten().to_numpy().reshape(len(flat), -1)
