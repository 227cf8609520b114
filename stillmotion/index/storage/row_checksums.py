"""Checksums of stored rows: a hash of each group of columns that are read together, compared whenever they are read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from stillmotion.errors import StillmotionError
from stillmotion.utils.hashing import hash_bytes

# Columns by the column of their checksum. The id is part of each, so that values of two rows cannot change places.
SEGMENT_CHECKSUMS: Mapping[str, Sequence[str]] = {
    "metadata_checksum": ("id", "path", "start", "end", "duration", "fingerprint"),
    "appearance_checksum": ("id", "appearance"),
    "motion_checksum": ("id", "motion"),
    "motion_field_checksum": ("id", "motion_field"),
    "thumbnail_checksum": ("id", "thumbnail"),
}
NEIGHBORHOOD_CHECKSUMS: Mapping[str, Sequence[str]] = {"checksum": ("id", "similarity")}
CALIBRATION_CHECKSUMS: Mapping[str, Sequence[str]] = {"checksum": ("key", "level", "appearance", "motion")}
VIDEO_CHECKSUMS: Mapping[str, Sequence[str]] = {"checksum": ("path", "fingerprint", "failure", "duration")}
_DIGEST_BYTES = 8
Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def with_checksums(rows: pa.Table, checksums: Mapping[str, Sequence[str]]) -> pa.Table:
    """Append columns of checksums.

    Args:
        rows: Rows to store.
        checksums: Columns by the name of their checksum; checksums of columns that the rows lack are left out.
    """
    for name, columns in checksums.items():
        if set(columns) <= set(rows.column_names):
            rows = rows.append_column(name, pa.array(_hash_rows(rows, columns), pa.string()))
    return rows


def columns_to_read(columns: Sequence[str], checksums: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the columns to read in order to verify some of them.

    Args:
        columns: Columns that are needed.
        checksums: Columns by the name of their checksum.
    """
    names = list(columns)
    for name, checked in checksums.items():
        if set(checked) & (set(columns) - {"id"}):
            names += [*checked, name]
    return list(dict.fromkeys(names))


def verify_rows(rows: Rows, checksums: Mapping[str, Sequence[str]], uri: str) -> Rows:
    """Compare rows with their checksums.

    Args:
        rows: Rows with the columns of `columns_to_read`.
        checksums: Columns by the name of their checksum.
        uri: The index, for the error.

    Returns:
        The rows.

    Raises:
        StillmotionError: If a value is not as it was stored.
    """
    for name, columns in checksums.items():
        if name not in rows.schema.names:
            continue
        has_columns = set(columns) <= set(rows.schema.names)
        if not has_columns or rows[name].to_pylist() != _hash_rows(rows, columns):
            raise StillmotionError(
                f"{uri} is damaged: stored values ({', '.join(columns)}) do not match their {name}; delete it and "
                "index again"
            )
    return rows


def _hash_rows(rows: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> list[str]:
    parts = [_column_bytes(rows[name]) for name in columns]
    return [hash_bytes(*values, digest_size=_DIGEST_BYTES) for values in zip(*parts, strict=True)]


def _column_bytes(column: pa.Array | pa.ChunkedArray) -> Iterable[bytes | memoryview]:
    """Return the bytes of each value; strings with their length, because several are hashed together."""
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_fixed_size_list(flat.type):
        vectors = np.ascontiguousarray(flat.flatten().to_numpy().reshape(len(flat), flat.type.list_size))
        return [row.data for row in vectors.view(np.uint8)]
    if pa.types.is_floating(flat.type):
        return [value.tobytes() for value in flat.to_numpy(zero_copy_only=False)]
    values = flat.cast(pa.binary()).to_pylist()  # a damaged string may not be UTF-8
    return [f"{len(value or b'')} ".encode() + (value or b"") for value in values]
