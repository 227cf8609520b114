"""Rows of the tables of an index: segments and completed videos."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stillmotion.index.storage.row_checksums import SEGMENT_CHECKSUMS, with_checksums
from stillmotion.index.video_segments import VECTOR_NAMES, VideoSegment

METADATA_COLUMNS = ("id", "path", "start", "end", "duration")


class SegmentRow(NamedTuple):
    """A segment as it is stored.

    Attributes:
        segment: The segment.
        fingerprint: Fingerprint of its video.
        appearance: Unit vector (D,).
        motion: Unit vector (M,).
        thumbnail: Thumbnail as WebP.
        motion_field: Motion field, int8 (F,); (0,) for encoders without fields.
    """

    segment: VideoSegment
    fingerprint: str
    appearance: np.ndarray
    motion: np.ndarray
    thumbnail: bytes
    motion_field: np.ndarray = np.zeros(0, np.int8)


class CompletedVideo(NamedTuple):
    """A video that is complete. `failure` is the reason why it could not be read; empty for one that was read."""

    path: str
    fingerprint: str
    duration: float
    failure: str = ""


def to_arrow(rows: Sequence[SegmentRow]) -> pa.Table:
    """Convert segments to the Arrow table that is stored, with checksums."""
    columns: dict[str, Any] = {name: [getattr(row.segment, name) for row in rows] for name in METADATA_COLUMNS}
    columns["fingerprint"] = [row.fingerprint for row in rows]
    for name, dtype in (*((name, np.float32) for name in VECTOR_NAMES), ("motion_field", np.int8)):
        vectors = np.stack([getattr(row, name) for row in rows]).astype(dtype)
        if vectors.shape[1]:
            columns[name] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    columns["thumbnail"] = pa.array([row.thumbnail for row in rows], pa.binary())
    return with_checksums(pa.table(columns), SEGMENT_CHECKSUMS)
