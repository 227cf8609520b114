"""Search of an index: brute force in memory, or LanceDB's IVF index for many segments.

Shapes: n segments, D channels; q segments of a query.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from stillmotion.errors import StillmotionError
from stillmotion.index.lance_tables import METADATA_COLUMNS, IndexTables, sql_quote
from stillmotion.index.query import Query
from stillmotion.index.search_config import check_motion_weight
from stillmotion.index.video_segments import VECTOR_NAMES, VectorName, VideoSegment
from stillmotion.utils.formatting import printable_name

IVF_MIN_SEGMENTS = 100_000  # segments from which on an IVF index is built and used
# Candidates by each vector: at least so many, so many per result, and one of so many segments. The more segments there
# are, the further from the best by one vector lies what is best by both.
_MIN_CANDIDATES, _CANDIDATES_PER_RESULT, _CANDIDATE_FRACTION = 256, 4, 1000
_NPROBES, _REFINE_FACTOR = 40, 4  # IVF partitions searched, and how many times as many candidates are compared exactly
_MAX_QUERY_VECTORS = 8  # segments of a query that are searched one by one


class SearchResult(NamedTuple):
    """A segment with the similarity it was ranked by and its cosines by appearance and by motion."""

    segment: VideoSegment
    similarity: float
    appearance: float
    motion: float

    def to_dict(self) -> dict[str, Any]:
        """Return the segment and its similarities as values for JSON."""
        segment = asdict(self.segment) | {"path": printable_name(self.segment.path)}
        return segment | {"similarity": self.similarity, "appearance": self.appearance, "motion": self.motion}


class BruteForce:
    """Compare a query with every segment; vectors are held in memory, ordered by path and start.

    Args:
        tables: Tables of the index.
    """

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables
        self.segments = [VideoSegment(**row) for row in tables.segment_metadata().to_pylist()]
        self.positions = {segment.id: position for position, segment in enumerate(self.segments)}

    def vectors(self, vector_name: VectorName) -> torch.Tensor:
        """Return the unit vectors (n, D) of all segments; (n, 0) if the encoder has none."""
        return self._vectors[vector_name]

    def query_of(self, id: str) -> Query:
        """Return a segment of the index as a query; KeyError if no segment has this id."""
        position = self.positions[id]
        appearance, motion = (self._vectors[name][position : position + 1].numpy() for name in VECTOR_NAMES)
        return Query(appearance, motion, self.segments[position].path)

    def neighbors(
        self, query: Query, *, motion_weight: float, top_k: int, exclude_id: str | None
    ) -> list[SearchResult]:
        """Return the most similar segments, best first.

        Args:
            query: Query vectors; segments of its video are left out.
            motion_weight: Weight of motion, 0 to 1.
            top_k: Number of results.
            exclude_id: Id of a segment to leave out.
        """
        cosines = [self._cosines(name, getattr(query, name)) for name in VECTOR_NAMES]
        ranked, best = ((1 - motion_weight) * cosines[0] + motion_weight * cosines[1]).max(1)
        ranked[self._path_slices.get(query.video_path or "", slice(0, 0))] = -torch.inf
        if exclude_id is not None:
            ranked[self.positions[exclude_id]] = -torch.inf
        scores, positions = ranked.topk(min(top_k, len(ranked)))
        return sort_results(
            SearchResult(self.segments[i], score, *(float(cosine[i, best[i]]) for cosine in cosines))
            for score, i in zip(scores.tolist(), positions.tolist(), strict=True)
            if score > -torch.inf
        )

    def _cosines(self, vector_name: VectorName, rows: np.ndarray) -> torch.Tensor:
        """Return cosines (n, q) of all segments with the query's; zeros if there are no vectors."""
        return self._vectors[vector_name] @ torch.from_numpy(np.ascontiguousarray(rows)).mT

    @cached_property
    def _vectors(self) -> dict[VectorName, torch.Tensor]:
        return {name: self._read_vectors(name) for name in VECTOR_NAMES}

    def _read_vectors(self, vector_name: VectorName) -> torch.Tensor:
        """Read vectors in the order of the segments, without a second copy in memory."""
        vectors = np.zeros((len(self.segments), self._tables.vector_dim(vector_name)), np.float32)
        for batch in self._tables.iter_batches(["id", vector_name]) if vectors.size else ():
            positions = [self.positions[id] for id in batch["id"].to_pylist()]
            vectors[positions] = column_to_array(batch[vector_name])
        return torch.from_numpy(vectors)

    @cached_property
    def _path_slices(self) -> dict[str, slice]:
        slices: dict[str, slice] = {}
        for position, segment in enumerate(self.segments):
            slices[segment.path] = slice(slices.get(segment.path, slice(position, 0)).start, position + 1)
        return slices


class IVF:
    """Search on disk: candidates by appearance and by motion from IVF partitions, then compared exactly.

    Args:
        tables: Tables of the index.
    """

    def __init__(self, tables: IndexTables) -> None:
        self._tables = tables

    def query_of(self, id: str) -> Query:
        """Return a segment of the index as a query; KeyError if no segment has this id."""
        rows = self._tables.rows_by_id([id], ["path", *self._vector_names])
        if not rows.num_rows:
            raise KeyError(id)
        empty = np.zeros((1, 0), np.float32)
        appearance, motion = (
            column_to_array(rows[name]) if name in self._vector_names else empty for name in VECTOR_NAMES
        )
        return Query(appearance, motion, rows["path"][0].as_py())

    def neighbors(
        self, query: Query, *, motion_weight: float, top_k: int, exclude_id: str | None
    ) -> list[SearchResult]:
        """Return the most similar of the candidates, best first; arguments as for `BruteForce.neighbors`."""
        conditions = [f"path != {sql_quote(query.video_path)}"] * (query.video_path is not None)
        conditions += [f"id != {sql_quote(exclude_id)}"] * (exclude_id is not None)
        weights = {"appearance": 1 - motion_weight, "motion": motion_weight}
        candidates: dict[str, SearchResult] = {}
        limit = max(_MIN_CANDIDATES, _CANDIDATES_PER_RESULT * top_k, len(self._tables) // _CANDIDATE_FRACTION)
        for vector_name in (name for name in self._vector_names if weights[name]):
            for row in getattr(query, vector_name)[:_MAX_QUERY_VECTORS]:
                search = self._tables.segments.search(row, vector_column_name=vector_name).distance_type("cosine")
                search = search.nprobes(_NPROBES).refine_factor(_REFINE_FACTOR).limit(limit)
                search = search.where(" AND ".join(conditions), prefilter=True) if conditions else search
                rows = self._tables.select_verified(search, [*METADATA_COLUMNS, *self._vector_names])
                for result in self._exact_results(rows, query, motion_weight):
                    candidates[result.segment.id] = result
        return sort_results(candidates.values())[:top_k]

    def _exact_results(self, rows: Any, query: Query, motion_weight: float) -> Iterable[SearchResult]:
        cosines = [
            column_to_array(rows[name]) @ getattr(query, name).T
            if name in self._vector_names
            else np.zeros((len(rows), 1))
            for name in VECTOR_NAMES
        ]
        ranked = (1 - motion_weight) * cosines[0] + motion_weight * cosines[1]
        for i, segment in enumerate(rows.select(METADATA_COLUMNS).to_pylist()):
            best = int(ranked[i].argmax())
            scores = (float(values[i, min(best, values.shape[1] - 1)]) for values in (ranked, *cosines))
            yield SearchResult(VideoSegment(**segment), *scores)

    @property
    def _vector_names(self) -> Sequence[VectorName]:
        return [name for name in VECTOR_NAMES if self._tables.vector_dim(name)]


def check_query(query: Query, tables: IndexTables, motion_weight: float) -> None:
    """Check that a query fits the vectors of an index.

    Args:
        query: Query vectors.
        tables: Tables of the index.
        motion_weight: Weight of motion, 0 to 1.

    Raises:
        StillmotionError: If the weight is out of range, the dimensions differ, or the index has no such vectors.
    """
    check_motion_weight(motion_weight)
    weights: dict[VectorName, float] = {"appearance": 1 - motion_weight, "motion": motion_weight}
    for name, weight in weights.items():
        stored, given = tables.vector_dim(name), getattr(query, name).shape[1]
        if len(tables) and stored != given:
            raise StillmotionError(
                f"the query has {given} {name} channels but the index has {stored}; use the index's own encoder"
            )
        if len(tables) and weight and not stored:
            raise StillmotionError(f"{tables.metadata.encoder} has no {name} vectors; search by the other")


def sort_results(results: Iterable[SearchResult]) -> list[SearchResult]:
    """Sort results, best first; equals by path and start."""
    return sorted(results, key=lambda result: (-result.similarity, result.segment.path, result.segment.start))


def column_to_array(column: Any) -> np.ndarray:
    """Convert a column of vectors of an Arrow batch or table to an array (n, D)."""
    flat = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return flat.flatten().to_numpy().reshape(len(flat), -1)
