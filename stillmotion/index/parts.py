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
from stillmotion.files import sweep, write
from stillmotion.index.table import Done, Row, Tables, arrow

_ENDING = ".arrow"
_KEY = b"videos"
_TOGETHER = 32  # parts that are stored by one commit


class Parts:
    """The parts of an index, in a folder on a disk that all ranks see.

    rank: whose parts are kept here. command: tells the parts of these ranks from those of an earlier command, whose
        last processes may still be about to end.
    """

    def __init__(self, folder: Path, *, rank: int, command: str) -> None:
        self.folder, self._rank, self._command = folder, rank, command
        self.written: list[str] = []
        self._taken: set[str] = set()

    def keep(self, rows: Sequence[Row], videos: Sequence[Done]) -> None:
        """Write moments, and videos that are done, as a part."""
        if not rows and not videos:
            return
        name = f"{self._command}-{self._rank:06}-{len(self.written):08}{_ENDING}"
        told = {_KEY: json.dumps(videos)}
        content = (arrow(rows) if rows else pa.table({})).replace_schema_metadata(told)
        write(self.folder / name, lambda partial: feather.write_feather(content, str(partial), "uncompressed"))
        self.written.append(name)

    def take(self, tables: Tables) -> None:
        """Store what ranks of this command have written so far."""
        self._take(tables, sorted(part.name for part in self.folder.glob(f"{self._command}-*{_ENDING}")))

    def take_rest(self, tables: Tables, names: Iterable[str]) -> None:
        """Store what is left of all that ranks have written; names: of these, since a disk may list them late."""
        self._take(tables, [name for name in names if name not in self._taken])
        _remove_empty(self.folder)

    def _take(self, tables: Tables, names: Sequence[str]) -> None:
        _store(tables, [self.folder / name for name in names])
        self._taken.update(names)


def take_left(folder: Path, tables: Tables, *, say: Callable[[str], object]) -> None:
    """Store what an earlier command has left in a folder, but for moments that are stored; say: told of damage."""
    if folder.is_dir():
        sweep(folder)
        known = {id for ids in tables.stored().values() for id in ids}
        _store(tables, sorted(folder.glob(f"[!.]*{_ENDING}")), known=known, say=say)
        _remove_empty(folder)


def _store(
    tables: Tables,
    parts: Sequence[Path],
    *,
    known: set[str] | None = None,
    say: Callable[[str], object] | None = None,
) -> None:
    """Store parts and remove them. known: ids that are left out. say: told of a damaged part, else an error."""
    for start in range(0, len(parts), _TOGETHER):
        some, videos = parts[start : start + _TOGETHER], []
        for part in some:
            try:
                content = feather.read_table(str(part))
                videos += [Done(*video) for video in json.loads(content.schema.metadata[_KEY])]
            except (pa.ArrowException, OSError, KeyError, ValueError, TypeError) as error:
                if say is None:
                    raise StillmotionError(
                        f"{part} cannot be read ({error}); the same command again makes its moments anew"
                    ) from None
                say(f"{part} is damaged; its moments are made anew")
                continue
            tables.add_content(_new(content, known))
        tables.note(videos)
        for part in some:
            part.unlink(missing_ok=True)


def _new(content: pa.Table, known: set[str] | None) -> pa.Table:
    """The moments of a part that are not known; they are from now on."""
    if known is None or not len(content):
        return content
    ids = content["id"].to_pylist()
    found = content.filter(pa.array([id not in known for id in ids], pa.bool_()))
    known.update(ids)
    return found


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # a process of an earlier command may have left something just now
        folder.rmdir()
