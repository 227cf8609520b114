"""Files in which ranks leave embedded segments until rank 0 commits them: the tables have one writer.

A file holds segments in the format of the table, and the videos that are complete with them. Its name ends with a hash
of its content.
"""

import contextlib
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import feather

from stillmotion.errors import StillmotionError
from stillmotion.index.storage.lance_tables import IndexTables
from stillmotion.index.storage.segment_rows import CompletedVideo, SegmentRow, to_arrow
from stillmotion.utils.file_lock import remove_stale_temp_files
from stillmotion.utils.files import write_atomic
from stillmotion.utils.hashing import hash_bytes

logger = logging.getLogger(__name__)

_SUFFIX = ".arrow"
_VIDEOS_KEY = b"videos"
_FILES_PER_COMMIT = 32


class RankSegmentStore:
    """Embedded video segments that ranks hand over to rank 0, in a folder on a shared file system.

    Args:
        folder: The folder.
        rank: Rank of this process.
        run_id: Name of this command, which distinguishes its files from those of an earlier command whose last
            processes may still be running.

    Attributes:
        written: Names of the files that this rank has written.
    """

    def __init__(self, folder: Path, *, rank: int, run_id: str) -> None:
        self.folder, self._rank, self._run_id = folder, rank, run_id
        self.written: list[str] = []
        self._committed: set[str] = set()

    def write(self, rows: Sequence[SegmentRow], videos: Sequence[CompletedVideo]) -> None:
        """Write a file.

        Args:
            rows: Segments.
            videos: Videos that are complete with them.
        """
        if not rows and not videos:
            return
        metadata = {_VIDEOS_KEY: json.dumps(videos)}
        table = (to_arrow(rows) if rows else pa.table({})).replace_schema_metadata(metadata)
        stream = pa.BufferOutputStream()
        feather.write_feather(table, stream, "uncompressed")
        content = memoryview(stream.getvalue())
        name = f"{self._run_id}-{self._rank:06}-{len(self.written):08}-{hash_bytes(content)}{_SUFFIX}"
        write_atomic(self.folder / name, lambda partial: partial.write_bytes(content))
        self.written.append(name)

    def commit_available(self, tables: IndexTables) -> None:
        """Commit what the ranks of this command have written so far."""
        self._commit(tables, sorted(file.name for file in self.folder.glob(f"{self._run_id}-*{_SUFFIX}")))

    def commit_rest(self, tables: IndexTables, names: Iterable[str]) -> None:
        """Commit the remaining files.

        Args:
            tables: Tables of the index.
            names: Names of all files that ranks have written; a shared disk may list them late.
        """
        self._commit(tables, [name for name in names if name not in self._committed])
        _remove_if_empty(self.folder)

    def _commit(self, tables: IndexTables, names: Sequence[str]) -> None:
        _commit_files(tables, [self.folder / name for name in names])
        self._committed.update(names)


def commit_leftovers(folder: Path, tables: IndexTables) -> None:
    """Commit the files that an earlier command has left, except for segments that are stored already.

    Args:
        folder: Folder of the files.
        tables: Tables of the index.
    """
    if folder.is_dir():
        remove_stale_temp_files(folder)
        known = {id for ids in tables.stored_fingerprints().values() for id in ids}
        _commit_files(tables, sorted(folder.glob(f"[!.]*{_SUFFIX}")), known=known)
        _remove_if_empty(folder)


def _commit_files(tables: IndexTables, files: Sequence[Path], *, known: set[str] | None = None) -> None:
    """Commit files and delete them.

    Args:
        tables: Tables of the index.
        files: The files.
        known: For files of an earlier command, ids of segments to leave out; a damaged file is then skipped with a
            warning, otherwise it is an error.
    """
    for start in range(0, len(files), _FILES_PER_COMMIT):
        some, videos = files[start : start + _FILES_PER_COMMIT], []
        for file in some:
            try:
                content, completed = _read_file(file)
                videos += completed
            except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
                if known is None:
                    raise StillmotionError(
                        f"{file} cannot be read ({error}); run the same command again to embed its segments anew"
                    ) from None
                logger.warning("%s is damaged; its segments are embedded again", file)
                continue
            tables.add_arrow(_without_known(content, known))
        tables.mark_completed(videos)
        for file in some:
            file.unlink(missing_ok=True)


def _read_file(file: Path) -> tuple[pa.Table, list[CompletedVideo]]:
    content = file.read_bytes()
    if not file.stem.endswith(f"-{hash_bytes(content)}"):
        raise ValueError("it does not match the hash in its name")
    table = feather.read_table(pa.BufferReader(content))
    return table, [CompletedVideo(*video) for video in json.loads(table.schema.metadata[_VIDEOS_KEY])]


def _without_known(content: pa.Table, known: set[str] | None) -> pa.Table:
    """Return the segments that are not known, and add them to those that are."""
    if known is None or not len(content):
        return content
    ids = content["id"].to_pylist()
    new = content.filter(pa.array([id not in known for id in ids], pa.bool_()))
    known.update(ids)
    return new


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a process of an earlier command may just have written a file
        folder.rmdir()
