"""The two LanceDB tables of an index: its moments, and the videos that are done with.

`videos` says of every video what content was looked at, and why it was passed over where it was. Its schema says what
the index was made with. A video is done when it stands there; its moments are stored before.
Every change is one commit of LanceDB's, which is whole or has not happened.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Literal, NamedTuple

os.environ.setdefault("LANCEDB_LOG", "error")  # read when it is imported: it warns of cells that it splits

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import BTree, IvfSq

from stillmotion.data.moments import Moment
from stillmotion.errors import StillmotionError
from stillmotion.files import writing

FORMAT = 1
Part = Literal["look", "motion"]
PARTS: tuple[Part, ...] = ("look", "motion")
LIGHT = ("id", "path", "start", "end", "duration")
_KEY = "stillmotion"
_AT_ONCE = 1000  # values named in one condition
_SAMPLE, _ROUNDS = 32, 20  # vectors a cell that cells are learned from, which are held in memory, and rounds of that
_KEPT = timedelta(days=1)  # earlier versions, which those may still read who have the index open
# What LanceDB raises of a table that it cannot read or write; OSError is a disk's.
_LANCE = (RuntimeError, ValueError, OSError, pa.ArrowException)


@dataclass(frozen=True)
class About:
    """What an index was made with.

    encoder: its full text. digest: of its weights and of how it is shown moments. videos: the folder, in full.
    settings: of the cutting and of what is stored.
    """

    encoder: str
    digest: str
    videos: str
    settings: Mapping[str, Any]
    format: int = FORMAT


class Row(NamedTuple):
    """A moment with what is stored of it: unit vectors, and a moving thumbnail as WebP."""

    moment: Moment
    fingerprint: str
    look: np.ndarray
    motion: np.ndarray
    thumbnail: bytes


class Done(NamedTuple):
    """A video that was looked at. reason: why it was passed over; empty of one that was read."""

    path: str
    fingerprint: str
    duration: float
    reason: str = ""


class Tables:
    """The tables at an address; `open` and `create` make one. moments: LanceDB's own; None while there are none."""

    def __init__(self, database: Any, about: About) -> None:
        self._database, self.about = database, about
        self._videos = database.open_table("videos")
        self.moments: Any = _table(database, "moments")

    @classmethod
    def open(cls, address: str) -> "Tables | None":
        """Those that lie there; None where there are none. What cannot be read is a StillmotionError."""
        with reading(address):
            database = lancedb.connect(address)
            videos = _table(database, "videos")
            if videos is None:
                return None
            said = json.loads((videos.schema.metadata or {}).get(_KEY.encode(), b"{}"))
            if not isinstance(said, dict) or said.get("format") != FORMAT:
                raise StillmotionError(f"{address} is no index of this version's format; delete it and index again")
            return cls(database, About(**said))

    @classmethod
    def create(cls, address: str, about: About) -> "Tables":
        """Empty ones."""
        with storing(address):
            database = lancedb.connect(address)
            fields = [(name, pa.string()) for name in ("path", "fingerprint", "reason")]
            schema = pa.schema([*fields, ("duration", pa.float64())], {_KEY: json.dumps(asdict(about))})
            _make(database, "videos", schema=schema)
            if "moments" in _names(database):
                database.drop_table("moments")
            return cls(database, about)

    def __len__(self) -> int:
        return 0 if self.moments is None else self.moments.count_rows()

    def width(self, part: Part) -> int:
        """Channels of the vectors of a part; 0 where there are none."""
        if self.moments is None or part not in self.moments.schema.names:
            return 0
        return self.moments.schema.field(part).type.list_size

    def done(self) -> dict[str, Done]:
        """The videos that were looked at, by path."""
        return {row["path"]: Done(**row) for row in self._videos.to_arrow().to_pylist()}

    def stored(self) -> dict[str, dict[str, str]]:
        """The fingerprints of the stored moments by id, by path; also of videos that are not done."""
        found: dict[str, dict[str, str]] = {}
        for batch in self.batches(["id", "path", "fingerprint"]):
            for id, path, fingerprint in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                found.setdefault(path, {})[id] = fingerprint
        return found

    def light(self) -> pa.Table:
        """Everything of the moments but vectors and thumbnails, by path and then by time."""
        if self.moments is None:
            return pa.table({name: [] for name in LIGHT})
        return pa.Table.from_batches(self.batches(LIGHT)).sort_by([("path", "ascending"), ("start", "ascending")])

    def batches(self, columns: Sequence[str], where: str | None = None) -> Iterator[pa.RecordBatch]:
        """These columns of the moments, some rows at a time."""
        if self.moments is None:
            return
        asked = self.moments.search().select(list(columns))
        yield from (asked.where(where) if where is not None else asked).to_batches()

    def rows(self, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """These columns of some moments, in the order of the ids; those that are not there are left out."""
        wanted = list(dict.fromkeys(["id", *columns]))
        parts = [batch for some in _some(ids) for batch in self.batches(wanted, f"id IN ({some})")]
        if not parts:
            return pa.table({name: [] for name in wanted})
        found = pa.Table.from_batches(parts)
        place = {id: number for number, id in enumerate(found["id"].to_pylist())}
        return found.take([place[id] for id in ids if id in place])

    def keep(self, rows: Sequence[Row], videos: Sequence[Done]) -> None:
        """Store moments, and then that videos are done."""
        self.add(rows)
        self.note(videos)

    def add(self, rows: Sequence[Row]) -> None:
        """Store moments, all or none."""
        if rows:
            self.add_content(arrow(rows))

    def add_content(self, content: pa.Table) -> None:
        """Store moments that are a table of `arrow`, all or none."""
        if not len(content):
            return
        with storing(self._database.uri):
            if self.moments is None:
                self.moments = _make(self._database, "moments", data=content)
            else:
                self.moments.add(content)

    def note(self, videos: Sequence[Done]) -> None:
        """Write down that videos are done, in place of what was said before; those passed over have no moments."""
        if not videos:
            return
        self.drop("path", [video.path for video in videos if video.reason])
        content = pa.Table.from_pylist([video._asdict() for video in videos], self._videos.schema)
        with storing(self._database.uri):
            merge = self._videos.merge_insert("path").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(content)

    def forget(self, paths: Iterable[str]) -> None:
        """Take out that videos are done."""
        with storing(self._database.uri):
            for some in _some(paths):
                self._videos.delete(f"path IN ({some})")

    def drop(self, column: Literal["id", "path"], values: Iterable[str]) -> None:
        """Take out moments by their ids or by their paths."""
        if self.moments is not None:
            with storing(self._database.uri):
                for some in _some(values):
                    self.moments.delete(f"{column} IN ({some})")

    def tidy(self, *, cells: bool) -> None:
        """Join the small files that commits leave. cells: keep an index of the vectors by cells, for many moments."""
        with storing(self._database.uri):
            for table in (self._videos, self.moments):
                if table is not None:
                    table.optimize(cleanup_older_than=_KEPT)  # which takes new moments into their cells, too
            if cells and self.moments is not None:
                self._make_cells(self.moments)

    def _make_cells(self, moments: Any) -> None:
        indexed = {name for index in moments.list_indices() for name in index.columns}
        wanted: dict[str, Any] = {"id": BTree()}
        for part in (part for part in PARTS if self.width(part)):
            wanted[part] = IvfSq(distance_type="cosine", sample_rate=_SAMPLE, max_iterations=_ROUNDS)
        for name in wanted.keys() - indexed:
            moments.create_index(name, config=wanted[name])


@contextmanager
def reading(address: str) -> Iterator[None]:
    """What LanceDB cannot read meanwhile is one line."""
    try:
        yield
    except _LANCE as error:
        raise StillmotionError(
            f"{address} cannot be read as an index ({_first_line(error)}); delete it and index again"
        ) from None


@contextmanager
def storing(address: str) -> Iterator[None]:
    """What LanceDB cannot write meanwhile is one line."""
    try:
        with writing(address):
            yield
    except _LANCE as error:
        raise StillmotionError(f"cannot write to {address}: {_first_line(error)}; choose another --out") from None


def _first_line(error: BaseException) -> str:
    words = (
        str(error).strip().partition("\n")[0].partition(", /")[0]
    )  # behind which a line of LanceDB's source is named
    return words[:300] or type(error).__name__


def _names(database: Any) -> list[str]:
    return list(database.list_tables().tables)


def _table(database: Any, name: str) -> Any:
    """A table; None where there is none, or where it was killed before its first commit."""
    if name not in _names(database):
        return None
    try:
        return database.open_table(name)
    except ValueError as error:
        if "was not found" in str(error):
            return None
        raise


def _make(database: Any, name: str, **content: Any) -> Any:
    """A new table, in the place of one that was never finished."""
    return database.create_table(name, mode="overwrite" if name in _names(database) else "create", **content)


def quoted(value: str | None) -> str:
    """A text as SQL has it."""
    return "'" + (value or "").replace("'", "''") + "'"


def _some(values: Iterable[str]) -> Iterator[str]:
    """Values as SQL has them, so many at a time."""
    listed = [quoted(value) for value in values]
    for start in range(0, len(listed), _AT_ONCE):
        yield ", ".join(listed[start : start + _AT_ONCE])


def arrow(rows: Sequence[Row]) -> pa.Table:
    """Moments as the table has them."""
    columns: dict[str, Any] = {name: [getattr(row.moment, name) for row in rows] for name in LIGHT}
    columns["fingerprint"] = [row.fingerprint for row in rows]
    for part in PARTS:
        vectors = np.stack([getattr(row, part) for row in rows]).astype(np.float32)
        if vectors.shape[1]:
            columns[part] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    columns["thumbnail"] = pa.array([row.thumbnail for row in rows], pa.binary())
    return pa.table(columns)
