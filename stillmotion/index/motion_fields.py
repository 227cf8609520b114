"""Motion fields of an index: how they are stored, and how similar each segment is to its neighbors.

The means of similarities to neighbors (`neighborhood_similarity`) are a table of their own, which is brought up
to date at the end of every update that changes the index.

Shapes: n segments, F numbers of a field.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from stillmotion.functional.motion_alignment import FIELD_SHAPE, field_spectrum, neighborhood_similarity
from stillmotion.index.storage.lance_connection import open_table, wrap_read_errors, wrap_write_errors
from stillmotion.index.storage.lance_tables import IndexTables
from stillmotion.index.storage.row_checksums import NEIGHBORHOOD_CHECKSUMS, verify_rows, with_checksums

_TABLE = "neighborhoods"
_MAX_REFERENCES = 4096  # segments among which neighbors are searched
_MIN_KEPT = 0.9  # fraction of segments with a stored mean above which only the others are computed
_MAX_INT8 = 127


def quantize_fields(fields: np.ndarray) -> np.ndarray:
    """Scale each field (n, F) to the range of int8 and round it; similarities do not depend on the scale."""
    largest = np.abs(fields).max(1, initial=1e-6, keepdims=True)
    return np.rint(fields * (_MAX_INT8 / largest)).astype(np.int8)


def unflatten_fields(fields: np.ndarray) -> Tensor:
    """Return flat fields (n, F) of any type as float32 (n, T-1, h, w, 3)."""
    return torch.from_numpy(np.ascontiguousarray(fields, np.float32)).view(-1, *FIELD_SHAPE)


def update_neighborhoods(tables: IndexTables) -> None:
    """Compute each segment's mean similarity to its nearest neighbors in other videos, unless segments are the same.

    Neighbors are searched among at most 4,096 segments, the first ones by id; ids are hashes, so that this is a random
    sample that hardly changes when videos are added. An index of more segments than that keeps the means it has if at
    most a tenth of its segments are new, so that adding a video does not compare all of them again.
    """
    ids = sorted(id for by_path in tables.stored_fingerprints().values() for id in by_path)
    if not ids or not tables.vector_dim("motion_field"):
        return
    stored = Neighborhoods(tables)
    if stored.is_current(ids):
        return
    rows = tables.rows_by_id(ids[:_MAX_REFERENCES], ["path", "motion_field"])
    paths, fields = np.array(rows["path"].to_pylist()), column_to_array(rows["motion_field"])
    references = unflatten_fields(fields)
    spectra = field_spectrum(references)
    means = stored.by_id(ids) if len(ids) > _MAX_REFERENCES else {}
    if len(means) < _MIN_KEPT * len(ids):
        means = {}
    for batch in tables.iter_batches(["id", "path", "motion_field"]):
        queries = unflatten_fields(column_to_array(batch["motion_field"]))
        for i, (id, path) in enumerate(zip(batch["id"].to_pylist(), batch["path"].to_pylist(), strict=True)):
            if id in means:
                continue
            # One segment at a time, so that the last digits do not depend on how segments were committed.
            same_video = torch.from_numpy(paths == path)
            means[id] = neighborhood_similarity(queries[i], references, spectra, same_video)
    content = pa.table({"id": sorted(means), "similarity": pa.array([means[id] for id in sorted(means)], pa.float32())})
    with wrap_write_errors(tables.database.uri):
        tables.database.create_table(_TABLE, data=with_checksums(content, NEIGHBORHOOD_CHECKSUMS), mode="overwrite")


class Neighborhoods:
    """The stored mean similarities of segments to their neighbors.

    Args:
        tables: Tables of the index.
    """

    def __init__(self, tables: IndexTables) -> None:
        uri, rows = tables.database.uri, pa.table({"id": [], "similarity": []})
        with wrap_read_errors(uri):
            table = open_table(tables.database, _TABLE)
            if table is not None:
                rows = verify_rows(table.to_arrow(), NEIGHBORHOOD_CHECKSUMS, uri)
        self._ids = np.array(rows["id"].to_pylist(), str)  # sorted
        self._means = np.array(rows["similarity"].to_pylist(), np.float32)

    def means(self, ids: Sequence[str]) -> np.ndarray:
        """Return the means of segments, float32 (n,); one of an unfinished build has the mean of all others."""
        if not len(self._ids):
            return np.zeros(len(ids), np.float32)
        positions = np.searchsorted(self._ids, ids).clip(max=len(self._ids) - 1)
        return np.where(self._ids[positions] == np.array(ids, str), self._means[positions], self._means.mean())

    def by_id(self, ids: Iterable[str]) -> dict[str, float]:
        """Return the stored means of these segments; segments without one are left out."""
        means = dict(zip(self._ids.tolist(), self._means.tolist(), strict=True))
        return {id: means[id] for id in ids if id in means}

    def is_current(self, ids: Iterable[str]) -> bool:
        """Whether the means are those of exactly these segments; a build may have been killed before the end."""
        return sorted(ids) == self._ids.tolist()


def column_to_array(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Convert a column of vectors of an Arrow batch or table to an array (n, D)."""
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return flat.flatten().to_numpy().reshape(len(flat), -1)
