"""Moments that ranks have embedded, in files that outlive them, until the first rank stores them.

Tables have one writer. A part holds moments as the table has them, and the videos that are done with them.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import feather

from stillmotion.errors import StillmotionError
from stillmotion.index.lance_tables import CompletedVideo, IndexTables, SegmentRow, to_arrow
from stillmotion.utils.file_lock import remove_stale_temp_files
from stillmotion.utils.files import write_atomic

_SUFFIX = ".arrow"
_VIDEOS_KEY = b"videos"
_PARTS_PER_COMMIT = 32  # parts that are stored by one commit


class PendingSegments:
    """The parts of an index, in a folder on a disk that all ranks see.

    rank: whose parts are kept here. command: tells the parts of these ranks from those of an earlier command, whose
        last processes may still be about to end.
    """

    def __init__(self, folder: Path, *, rank: int, run_id: str) -> None:
        self.folder, self._rank, self._run_id = folder, rank, run_id
        self.written: list[str] = []
        self._committed: set[str] = set()

    def write(self, rows: Sequence[SegmentRow], videos: Sequence[CompletedVideo]) -> None:
        """Write moments, and videos that are done, as a part."""
        if not rows and not videos:
            return
        name = f"{self._run_id}-{self._rank:06}-{len(self.written):08}{_SUFFIX}"
        told = {_VIDEOS_KEY: json.dumps(videos)}
        content = (to_arrow(rows) if rows else pa.table({})).replace_schema_metadata(told)
        write_atomic(self.folder / name, lambda partial: feather.write_feather(content, str(partial), "uncompressed"))
        self.written.append(name)

    def commit_available(self, tables: IndexTables) -> None:
        """Store what ranks of this command have written so far."""
        self._commit(tables, sorted(part.name for part in self.folder.glob(f"{self._run_id}-*{_SUFFIX}")))

    def commit_rest(self, tables: IndexTables, names: Iterable[str]) -> None:
        """Store what is left of all that ranks have written; names: of these, since a disk may list them late."""
        self._commit(tables, [name for name in names if name not in self._committed])
        _remove_if_empty(self.folder)

    def _commit(self, tables: IndexTables, names: Sequence[str]) -> None:
        _commit_parts(tables, [self.folder / name for name in names])
        self._committed.update(names)


def commit_leftovers(folder: Path, tables: IndexTables, *, say: Callable[[str], object]) -> None:
    """Store what an earlier command has left in a folder, but for moments that are stored; say: told of damage."""
    if folder.is_dir():
        remove_stale_temp_files(folder)
        known = {id for ids in tables.stored_fingerprints().values() for id in ids}
        _commit_parts(tables, sorted(folder.glob(f"[!.]*{_SUFFIX}")), known=known, say=say)
        _remove_if_empty(folder)


def _commit_parts(
    tables: IndexTables,
    parts: Sequence[Path],
    *,
    known: set[str] | None = None,
    say: Callable[[str], object] | None = None,
) -> None:
    """Store parts and remove them. known: ids that are left out. say: told of a damaged part, else an error."""
    for start in range(0, len(parts), _PARTS_PER_COMMIT):
        some, videos = parts[start : start + _PARTS_PER_COMMIT], []
        for part in some:
            try:
                content = feather.read_table(str(part))
                videos += [CompletedVideo(*video) for video in json.loads(content.schema.metadata[_VIDEOS_KEY])]
            except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
                if say is None:
                    raise StillmotionError(
                        f"{part} cannot be read ({error}); the same command again makes its moments anew"
                    ) from None
                say(f"{part} is damaged; its moments are made anew")
                continue
            tables.add_arrow(_without_known(content, known))
        tables.mark_completed(videos)
        for part in some:
            part.unlink(missing_ok=True)


def _without_known(content: pa.Table, known: set[str] | None) -> pa.Table:
    """The moments of a part that are not known; they are from now on."""
    if known is None or not len(content):
        return content
    ids = content["id"].to_pylist()
    found = content.filter(pa.array([id not in known for id in ids], pa.bool_()))
    known.update(ids)
    return found


def _remove_if_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a process of an earlier command may have left something just now
        folder.rmdir()
