"""An index of moments: what is in it, and what is near by look and by motion."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from stillmotion.data.moments import Moment
from stillmotion.errors import StillmotionError
from stillmotion.index import nearest
from stillmotion.index.nearest import Found, check
from stillmotion.index.places import address, default_place, is_remote
from stillmotion.index.query import Query
from stillmotion.index.table import LIGHT, About, Part, Tables, reading


class Index:
    """The moments of a folder of videos; `open` gives one.

    folder: where it lies; of one at an address, where what belongs to it is kept on this machine.
    videos: the folder that was indexed. encoder: the text of what it was made with.
    """

    def __init__(self, place: str, tables: Tables) -> None:
        self.address, self._tables = place, tables
        self.videos = Path(os.fsdecode(tables.about.videos.encode("utf-8", "surrogateescape")))
        self.folder = default_place(self.videos) if is_remote(place) else Path(place)
        self.encoder = tables.about.encoder

    @classmethod
    def open(cls, folder: str | Path) -> "Index":
        """The index that lies in a folder or at an address, or that of a folder of videos at its default place."""
        for place in (address(folder), address(default_place(folder))):
            if is_remote(place) or Path(place).is_dir():
                tables = Tables.open(place)
                if tables is not None:
                    return cls(place, tables)
        raise StillmotionError(f"{folder} is no index and has none; make one: stillmotion index {folder}")

    @property
    def about(self) -> About:
        """What it was made with."""
        return self._tables.about

    def __len__(self) -> int:
        return len(self._tables)

    def moments(self) -> list[Moment]:
        """All of them, by path and then by start."""
        return list(self._scan.moments)

    def moment(self, id: str) -> Moment:
        """One of them; KeyError where there is none of this id."""
        if not self._is_large:
            return self._scan.moments[self._scan.numbers[id]]
        return Moment(**self._row(id, LIGHT))

    def file(self, id: str) -> Path:
        """The video of a moment, in full; it may be gone."""
        path = self.moment(id).path
        plain = self.videos / path
        if "\\x" in path and not plain.exists():  # a name that is not UTF-8
            return self.videos / os.fsdecode(path.encode().decode("unicode_escape").encode("latin-1", "replace"))
        return plain

    def thumbnail(self, id: str) -> bytes:
        """A small animated WebP of a moment; KeyError where there is none of this id."""
        return self._row(id, ["thumbnail"])["thumbnail"]

    def vectors(self, kind: Part) -> np.ndarray:
        """The unit vectors of all moments by look or by motion, float32 (n, D), in the order of `moments`."""
        with reading(self.address):
            return self._scan.vectors(kind).numpy()

    def skipped(self) -> dict[str, str]:
        """The videos that could not be read, and why."""
        with reading(self.address):
            return {path: done.reason for path, done in sorted(self._tables.done().items()) if done.reason}

    def near(self, query: str | Query, *, mix: float = 0.5, top: int = 12, apart: bool = True) -> list[Found]:
        """The moments most alike to one of the index, by its id, or to a query; best first.

        mix: 0 by look alone, 1 by motion alone; between them similarity is (1 - mix)·look + mix·motion, of cosines.
        apart: leave out all moments of the query's own video; else, of a moment of the index, itself alone.
        Below 100,000 moments every one is compared; above, candidates by look and by motion are, of LanceDB's cells.
        """
        ways = self._probe if self._is_large else self._scan
        with reading(self.address):
            asked = ways.asked(query) if isinstance(query, str) else query
            check(asked, self._tables, mix)
            asked = asked if apart else replace(asked, path=None)
            return ways.near(asked, mix=mix, top=top, without=query if isinstance(query, str) else None)

    def _row(self, id: str, columns: Sequence[str]) -> dict[str, Any]:
        with reading(self.address):
            found = self._tables.rows([id], columns).select(list(columns)).to_pylist()
        if not found:
            raise KeyError(id)
        return found[0]

    @cached_property
    def _is_large(self) -> bool:
        return len(self._tables) >= nearest.LARGE

    @cached_property
    def _scan(self) -> nearest.Scan:
        with reading(self.address):
            return nearest.Scan(self._tables)

    @cached_property
    def _probe(self) -> nearest.Probe:
        return nearest.Probe(self._tables)
