"""Search of an index: brute force in memory, or LanceDB's IVF index for many segments.

Where an index has motion fields, the cosines of the motion vectors only find candidates, which are then compared under
alignment.

Shapes: n segments, D channels; q segments of a query.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from stillmotion.errors import StillmotionError
from stillmotion.functional.motion_alignment import ALIGNMENTS, FIELD_GRID, NUM_NEIGHBORS, Alignment, aligned_similarity
from stillmotion.index.motion_fields import Neighborhoods, column_to_array, unflatten_fields
from stillmotion.index.search.config import check_motion_weight
from stillmotion.index.search.query import Query
from stillmotion.index.storage.lance_connection import sql_quote
from stillmotion.index.storage.lance_tables import IndexTables
from stillmotion.index.storage.segment_rows import METADATA_COLUMNS
from stillmotion.index.video_segments import VECTOR_NAMES, VectorName, VideoSegment
from stillmotion.utils.formatting import printable_name

IVF_MIN_SEGMENTS = 100_000  # segments from which on an IVF index is built and used
# Candidates by each vector: at least so many, so many per result, and one of so many segments. The more segments there
# are, the further from the best by one vector lies what is best by both.
_MIN_CANDIDATES, _CANDIDATES_PER_RESULT, _CANDIDATE_FRACTION = 256, 4, 1000
_NPROBES, _REFINE_FACTOR = 40, 4  # IVF partitions searched, and how many times as many candidates are compared exactly
_MAX_QUERY_VECTORS = 8  # segments of a query that are searched one by one
_MIN_ALIGNED = 150  # candidates that are compared under alignment, at least


class SearchResult(NamedTuple):
    """A segment with its similarities to a query.

    Attributes:
        segment: The segment.
        similarity: What it was ranked by.
        appearance: Cosine by appearance.
        motion: Cosine by motion or, where there are motion fields, similarity under the best alignment.
        alignment: The best alignment of the query with the segment; None without motion fields.
        appearance_percentile: Percentage of random pairs of segments of the index that are less similar by appearance;
            None if there are too few to say.
        motion_percentile: The same by motion.
        close_by: Vectors by which the segment is more similar than chance explains (see `calibration`).
    """

    segment: VideoSegment
    similarity: float
    appearance: float
    motion: float
    alignment: Alignment | None = None
    appearance_percentile: float | None = None
    motion_percentile: float | None = None
    close_by: tuple[VectorName, ...] = ()

    @property
    def alignment_text(self) -> str:
        """The alignment as text, such as "mirrored, 0.4 s later"; empty if the motion matches as it is."""
        seconds = (self.segment.end - self.segment.start) / FIELD_GRID[0]
        return "" if self.alignment is None else self.alignment.describe(seconds)

    def to_dict(self) -> dict[str, Any]:
        """Return the segment, its similarities and the alignment as values for JSON."""
        segment = asdict(self.segment) | {"path": printable_name(self.segment.path)}
        scores = {"similarity": self.similarity, "appearance": self.appearance, "motion": self.motion}
        chance = {
            "appearance_percentile": self.appearance_percentile,
            "motion_percentile": self.motion_percentile,
            "close_by": list(self.close_by),
        }
        return segment | scores | {"alignment": self.alignment_text} | chance


class _Candidates(NamedTuple):
    """Segments to rank: cosines (n, q) with the query's, motion fields int8 (n, F) and mean similarities to neighbors.

    Fields and neighborhoods are None where motion vectors are compared.
    """

    appearance: torch.Tensor
    motion: torch.Tensor
    fields: np.ndarray | None = None
    neighborhoods: np.ndarray | None = None


class _Ranking(NamedTuple):
    """Similarities (n,) of candidates by their best-matching segment of the query, and positions of the alignments."""

    similarity: torch.Tensor
    appearance: torch.Tensor
    motion: torch.Tensor
    alignment: torch.Tensor | None = None

    def result(self, i: int, segment: VideoSegment) -> SearchResult:
        alignment = None if self.alignment is None else ALIGNMENTS[int(self.alignment[i])]
        similarity, appearance, motion = (float(x[i]) for x in (self.similarity, self.appearance, self.motion))
        return SearchResult(segment, similarity, appearance, motion, alignment)


def _rank(candidates: _Candidates, query: Query, motion_weight: float) -> _Ranking:
    """Compare candidates with a query; by motion under alignment, less what both are similar to their neighbors."""
    motion, corrected, alignment = candidates.motion, candidates.motion, None
    if candidates.fields is not None and query.motion_field is not None:
        queries, fields = unflatten_fields(query.motion_field), unflatten_fields(candidates.fields)
        parts = [aligned_similarity(some, fields) for some in queries.split(_MAX_QUERY_VECTORS)]
        motion, alignment = (torch.cat(x).mT for x in zip(*parts, strict=True))
        own = motion.topk(min(NUM_NEIGHBORS, len(motion)), 0).values.mean(0)
        corrected = motion - (own + torch.from_numpy(candidates.neighborhoods)[:, None]) / 2
        corrected = corrected.where(motion > 0, -1.0)  # a still segment is similar to nothing
    mixed = (1 - motion_weight) * candidates.appearance + motion_weight * corrected
    similarity, best = mixed.max(1)
    appearance, motion = (x.gather(1, best[:, None])[:, 0] for x in (candidates.appearance, motion))
    alignment = None if alignment is None else alignment.gather(1, best[:, None])[:, 0]
    return _Ranking(similarity, appearance, motion, alignment)


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
        field = None if self.fields is None else self.fields[position : position + 1]
        return Query(appearance, motion, field, self.segments[position].path)

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
        ranked = ((1 - motion_weight) * cosines[0] + motion_weight * cosines[1]).amax(1)
        ranked[self._path_slices.get(query.video_path or "", slice(0, 0))] = -torch.inf
        if exclude_id is not None:
            ranked[self.positions[exclude_id]] = -torch.inf
        num_candidates = top_k if self.fields is None or not motion_weight else max(_MIN_ALIGNED, top_k)
        scores, positions = ranked.topk(min(num_candidates, len(ranked)))
        positions = positions[scores > -torch.inf]
        segments = [self.segments[i] for i in positions.tolist()]
        fields = neighborhoods = None
        if self.fields is not None:
            fields = self.fields[positions.numpy()]
            neighborhoods = self._neighborhoods.means([segment.id for segment in segments])
        appearance, motion = (x[positions] for x in cosines)
        ranking = _rank(_Candidates(appearance, motion, fields, neighborhoods), query, motion_weight)
        return sort_results(ranking.result(i, segment) for i, segment in enumerate(segments))[:top_k]

    def _cosines(self, vector_name: VectorName, rows: np.ndarray) -> torch.Tensor:
        """Return cosines (n, q) of all segments with the query's; zeros if there are no vectors."""
        return self._vectors[vector_name] @ torch.from_numpy(np.ascontiguousarray(rows)).mT

    @cached_property
    def _vectors(self) -> dict[VectorName, torch.Tensor]:
        return {name: self._read_vectors(name) for name in VECTOR_NAMES}

    @cached_property
    def fields(self) -> np.ndarray | None:
        """Motion fields of all segments, int8 (n, F); None without."""
        has_fields = self._tables.vector_dim("motion_field") > 0
        return self._read_vectors("motion_field", np.int8).numpy() if has_fields else None

    @cached_property
    def _neighborhoods(self) -> Neighborhoods:
        return Neighborhoods(self._tables)

    def _read_vectors(
        self, name: VectorName | Literal["motion_field"], dtype: type[np.generic] = np.float32
    ) -> torch.Tensor:
        """Read vectors in the order of the segments, without a second copy in memory."""
        vectors = np.zeros((len(self.segments), self._tables.vector_dim(name)), dtype)
        for batch in self._tables.iter_batches(["id", name]) if vectors.size else ():
            positions = [self.positions[id] for id in batch["id"].to_pylist()]
            vectors[positions] = column_to_array(batch[name])
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
        rows = self._tables.rows_by_id([id], ["path", *self._columns])
        if not rows.num_rows:
            raise KeyError(id)
        empty = np.zeros((1, 0), np.float32)
        appearance, motion = (column_to_array(rows[name]) if name in self._columns else empty for name in VECTOR_NAMES)
        field = column_to_array(rows["motion_field"]) if "motion_field" in self._columns else None
        return Query(appearance, motion, field, rows["path"][0].as_py())

    def neighbors(
        self, query: Query, *, motion_weight: float, top_k: int, exclude_id: str | None
    ) -> list[SearchResult]:
        """Return the most similar of the candidates, best first; arguments as for `BruteForce.neighbors`."""
        conditions = [f"path != {sql_quote(query.video_path)}"] * (query.video_path is not None)
        conditions += [f"id != {sql_quote(exclude_id)}"] * (exclude_id is not None)
        weights = {"appearance": 1 - motion_weight, "motion": motion_weight}
        tables = []
        limit = max(_MIN_CANDIDATES, _CANDIDATES_PER_RESULT * top_k, len(self._tables) // _CANDIDATE_FRACTION)
        for vector_name in (name for name in VECTOR_NAMES if name in self._columns and weights[name]):
            for row in getattr(query, vector_name)[:_MAX_QUERY_VECTORS]:
                search = self._tables.segments.search(row, vector_column_name=vector_name).distance_type("cosine")
                search = search.nprobes(_NPROBES).refine_factor(_REFINE_FACTOR).limit(limit)
                search = search.where(" AND ".join(conditions), prefilter=True) if conditions else search
                tables.append(self._tables.select_verified(search, [*METADATA_COLUMNS, *self._columns]))
        return self._exact_results(tables, query, motion_weight, top_k)

    def _exact_results(
        self, tables: Sequence[pa.Table], query: Query, motion_weight: float, top_k: int
    ) -> list[SearchResult]:
        rows = pa.concat_tables(table.drop_columns(["_distance"]) for table in tables)
        rows = rows.take(np.unique(rows["id"].to_numpy(zero_copy_only=False), return_index=True)[1])
        cosines = [
            torch.from_numpy(column_to_array(rows[name]) @ getattr(query, name).T)
            if name in self._columns
            else torch.zeros(len(rows), len(query.appearance))
            for name in VECTOR_NAMES
        ]
        fields = neighborhoods = None
        if "motion_field" in self._columns:
            mixed = ((1 - motion_weight) * cosines[0] + motion_weight * cosines[1]).amax(1)
            best = mixed.topk(min(max(_MIN_ALIGNED, top_k), len(mixed))).indices
            rows, cosines = rows.take(best.numpy()), [x[best] for x in cosines]
            fields = column_to_array(rows["motion_field"])
            neighborhoods = self._neighborhoods.means(rows["id"].to_pylist())
        ranking = _rank(_Candidates(cosines[0], cosines[1], fields, neighborhoods), query, motion_weight)
        segments = rows.select(METADATA_COLUMNS).to_pylist()
        return sort_results(ranking.result(i, VideoSegment(**x)) for i, x in enumerate(segments))[:top_k]

    @cached_property
    def _neighborhoods(self) -> Neighborhoods:
        return Neighborhoods(self._tables)

    @cached_property
    def _columns(self) -> Sequence[str]:
        return [name for name in (*VECTOR_NAMES, "motion_field") if self._tables.vector_dim(name)]


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
