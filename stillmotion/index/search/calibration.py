"""Similarities of random pairs of segments of an index, by which a search tells results from chance.

A similarity of 0.6 says little: in one folder all videos are that similar, in another none. The quantiles of the
similarities between random segments of different videos are stored with the index and computed anew when it changes.
They give a similarity its percentile. The best of n results has a high one even where nothing is alike; close is only
what is more similar than the best of n unrelated segments in all but one of a thousand searches, if the similarities
of unrelated segments have the tail of a normal distribution. (Their tail is somewhat heavier.)

Shapes: n segments, m random ones.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa
import torch

from stillmotion.errors import StillmotionError
from stillmotion.functional.motion_alignment import aligned_similarity
from stillmotion.index.motion_fields import column_to_array, unflatten_fields
from stillmotion.index.search.backends import SearchResult
from stillmotion.index.storage.lance_connection import open_table, wrap_read_errors, wrap_write_errors
from stillmotion.index.storage.lance_tables import IndexTables
from stillmotion.index.storage.row_checksums import CALIBRATION_CHECKSUMS, verify_rows, with_checksums
from stillmotion.index.video_segments import VECTOR_NAMES, VectorName
from stillmotion.utils.hashing import hash_bytes

_TABLE = "calibration"
_MAX_SEGMENTS = 160  # random segments, all pairs of which are compared
_MIN_PAIRS = 30  # with fewer, nothing is said about chance
_LEVELS = np.linspace(0, 1, 1001)  # of the stored quantiles
_FALSE_ALARMS = 1e-3  # searches among unrelated segments in which one is called close
_UPPER_LEVEL = 0.9  # quantile that, with the median, gives the scale of the similarities
_MAX_THRESHOLD = 0.95  # of the way from the median to 1: a copy is always close


def update_calibration(tables: IndexTables) -> None:
    """Compute the quantiles of an index, unless they are those of its segments.

    The random segments are the first ones by id, because ids are hashes.
    """
    ids = sorted(id for by_path in tables.stored_fingerprints().values() for id in by_path)
    key = hash_bytes("\n".join(ids).encode(), digest_size=12)
    if not ids or Calibration(tables).key == key:
        return
    has_fields = tables.vector_dim("motion_field") > 0
    columns: dict[VectorName, str] = {"appearance": "appearance", "motion": "motion_field" if has_fields else "motion"}
    stored = [column for column in columns.values() if tables.vector_dim(column)]
    rows = tables.rows_by_id(ids[:_MAX_SEGMENTS], ["path", *stored])
    paths = np.array(rows["path"].to_pylist())
    quantiles = {name: np.full(len(_LEVELS), np.nan, np.float32) for name in VECTOR_NAMES}
    for name, column in columns.items():
        if column not in stored:
            continue
        vectors = column_to_array(rows[column])
        moves = vectors.any(1)  # a still segment is similar to nothing, which says nothing about the others
        similarities = _pair_similarities(vectors[moves], paths[moves], is_field=column == "motion_field")
        if len(similarities) >= _MIN_PAIRS:
            quantiles[name] = np.quantile(similarities, _LEVELS).astype(np.float32)
    content = pa.table([[key] * len(_LEVELS), _LEVELS, *quantiles.values()], names=["key", "level", *quantiles])
    with wrap_write_errors(tables.database.uri):
        tables.database.create_table(_TABLE, data=with_checksums(content, CALIBRATION_CHECKSUMS), mode="overwrite")


def _pair_similarities(vectors: np.ndarray, paths: np.ndarray, *, is_field: bool) -> np.ndarray:
    """Return the similarities of all pairs of vectors (m, D) of different videos."""
    if is_field:
        fields = unflatten_fields(vectors)
        parts = [aligned_similarity(some, fields)[0] for some in fields.split(8)]
        similarities = torch.cat(parts).numpy() if parts else np.zeros((0, 0), np.float32)
    else:
        similarities = vectors @ vectors.T
    return similarities[np.triu(paths[:, None] != paths, 1)]


class Calibration:
    """The stored quantiles of an index.

    Args:
        tables: Tables of the index.

    Attributes:
        key: Hash of the segments that the index had; empty without quantiles.
    """

    def __init__(self, tables: IndexTables) -> None:
        uri = tables.database.uri
        self.key, self._num_segments = "", len(tables)
        self._quantiles: dict[VectorName, np.ndarray] = {}
        with wrap_read_errors(uri):
            table = open_table(tables.database, _TABLE)
            if table is None:
                return
            rows = verify_rows(table.to_arrow(), CALIBRATION_CHECKSUMS, uri)
        if not {"key", "level", *VECTOR_NAMES} <= set(rows.column_names):
            raise StillmotionError(f"{uri} is damaged: its {_TABLE} lacks columns; delete it and index again")
        self.key = rows["key"][0].as_py()
        for name in VECTOR_NAMES:
            values = rows[name].to_numpy()[np.argsort(rows["level"].to_numpy())]
            if np.isfinite(values).all():
                self._quantiles[name] = values

    def annotate(self, result: SearchResult) -> SearchResult:
        """Return a result with its percentiles and the vectors by which it is close."""
        similarities: dict[VectorName, float] = {"appearance": result.appearance, "motion": result.motion}
        return result._replace(
            appearance_percentile=self.percentile("appearance", result.appearance),
            motion_percentile=self.percentile("motion", result.motion),
            close_by=tuple(name for name, value in similarities.items() if value > self._thresholds.get(name, np.inf)),
        )

    def percentile(self, vector_name: VectorName, similarity: float) -> float | None:
        """Return the percentage of random pairs that are less similar; None if there are too few pairs to say."""
        values = self._quantiles.get(vector_name)
        return None if values is None else 100 * float(np.searchsorted(values, similarity) / len(values))

    @cached_property
    def _thresholds(self) -> dict[VectorName, float]:
        """Similarities that the best of n unrelated segments exceeds in one of a thousand searches.

        A normal tail is extrapolated from the median and the 90th percentile: higher ones may be pairs that are alike.
        """
        from scipy.stats import norm

        deviations = norm.isf(_FALSE_ALARMS / max(1, self._num_segments)) / norm.ppf(_UPPER_LEVEL)
        thresholds: dict[VectorName, float] = {}
        for name, values in self._quantiles.items():
            median, upper = (float(np.interp(level, _LEVELS, values)) for level in (0.5, _UPPER_LEVEL))
            thresholds[name] = median + min(deviations * (upper - median), _MAX_THRESHOLD * (1 - median))
        return thresholds
