"""Open LanceDB databases and tables, quote SQL, and report errors of LanceDB as one line."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillmotion.errors import StillmotionError
from stillmotion.index.storage.lance_files import hide_panic_message
from stillmotion.utils.files import report_disk_errors

_MAX_SQL_VALUES = 1000  # values in one SQL condition
# What LanceDB raises for a table that it cannot read or write; OSError comes from the disk.
_LANCE_ERRORS = (RuntimeError, ValueError, OSError, pa.ArrowException)


def connect(uri: str) -> Any:
    """Connect to the database in a folder or at a URI."""
    os.environ.setdefault("LANCEDB_LOG", "error")  # read on import; it warns of partitions that it splits
    import lancedb  # seconds to import

    return lancedb.connect(uri)


def table_names(database: Any) -> list[str]:
    """Names of all tables."""
    return list(database.list_tables().tables)


def open_table(database: Any, name: str) -> Any:
    """Open a table; None if there is none, or if it was killed before its first commit.

    Raises:
        ValueError: If LanceDB cannot read it, or if its first commit has disappeared.
    """
    if name not in table_names(database):
        return None
    try:
        return database.open_table(name)
    except ValueError as error:
        # LanceDB writes the hint after the first commit. Without it the table was never finished.
        hint = Path(database.uri, f"{name}.lance", "_versions", "latest_version_hint.json")
        if "was not found" in str(error) and not hint.exists():
            return None
        raise


def create_table(database: Any, name: str, **content: Any) -> Any:
    """Create a table, replacing one that was never finished."""
    return database.create_table(name, mode="overwrite" if name in table_names(database) else "create", **content)


def sql_quote(value: str | None) -> str:
    """Quote a string for SQL."""
    return "'" + (value or "").replace("'", "''") + "'"


def sql_value_lists(values: Iterable[str]) -> Iterator[str]:
    """Yield comma-separated SQL values, a limited number at a time."""
    quoted = [sql_quote(value) for value in values]
    for start in range(0, len(quoted), _MAX_SQL_VALUES):
        yield ", ".join(quoted[start : start + _MAX_SQL_VALUES])


@contextmanager
def wrap_read_errors(uri: str) -> Iterator[None]:
    """Turn LanceDB's read errors into one line that names the index."""
    try:
        with hide_panic_message():
            yield
    except BaseException as error:
        if not _is_lance_error(error):
            raise
        raise StillmotionError(
            f"{uri} cannot be read as an index ({_first_line(error)}); delete it and index again"
        ) from None


@contextmanager
def wrap_write_errors(uri: str) -> Iterator[None]:
    """Turn LanceDB's write errors into one line that names the index."""
    try:
        with report_disk_errors(uri):
            yield
    except BaseException as error:
        if not _is_lance_error(error):
            raise
        raise StillmotionError(f"cannot write to {uri}: {_first_line(error)}; choose another --out") from None


def _is_lance_error(error: BaseException) -> bool:
    # A panic of the Rust library is a BaseException of one of two classes that cannot be imported.
    return isinstance(error, _LANCE_ERRORS) or type(error).__name__ in ("PanicException", "RustPanic")


def _first_line(error: BaseException) -> str:
    message = str(error).strip().partition("\n")[0].partition(", /")[0]  # a line of LanceDB's source follows
    return message[:300] or type(error).__name__
