"""An index of moments: what is in it, and what is near by look and by motion.

Shapes: n moments, D channels; q moments of a query.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch

from stillmotion.errors import StillmotionError
from stillmotion.index.moments import Moment
from stillmotion.index.places import address, default_place, is_remote
from stillmotion.index.query import Query
from stillmotion.index.table import PARTS, About, Part, Tables, reading


class Found(NamedTuple):
    """A moment, what it was ranked by, and its cosines by look and by motion."""

    moment: Moment
    similarity: float
    look: float
    motion: float


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
        return self._light.num_rows

    def moments(self) -> list[Moment]:
        """All of them, by path and then by start."""
        return list(self._moments)

    def moment(self, id: str) -> Moment:
        """One of them; KeyError where there is none of this id."""
        return self._moments[self._numbers[id]]

    def file(self, id: str) -> Path:
        """The video of a moment, in full; it may be gone."""
        path = self.moment(id).path
        plain = self.videos / path
        if "\\x" in path and not plain.exists():  # a name that is not UTF-8
            return self.videos / os.fsdecode(path.encode().decode("unicode_escape").encode("latin-1", "replace"))
        return plain

    def thumbnail(self, id: str) -> bytes:
        """A small animated WebP of a moment; KeyError where there is none of this id."""
        with reading(self.address):
            found = self._tables.rows([self.moment(id).id], ["thumbnail"])["thumbnail"].to_pylist()
        if not found:
            raise KeyError(id)
        return found[0]

    def vectors(self, kind: Part) -> np.ndarray:
        """The unit vectors of all moments by look or by motion, float32 (n, D), in the order of `moments`."""
        return self._vectors[kind].numpy()

    def skipped(self) -> dict[str, str]:
        """The videos that could not be read, and why."""
        with reading(self.address):
            return {path: done.reason for path, done in sorted(self._tables.done().items()) if done.reason}

    def near(self, query: str | Query, *, mix: float = 0.5, top: int = 12, apart: bool = True) -> list[Found]:
        """The moments most alike to one of the index, by its id, or to a query; best first.

        mix: 0 by look alone, 1 by motion alone; between them similarity is (1 - mix)·look + mix·motion, of cosines.
        apart: leave out all moments of the query's own video; else, of a moment of the index, itself alone.
        """
        if not 0 <= mix <= 1:
            raise StillmotionError(f"mix is {mix}; it lies between 0, by look, and 1, by motion")
        asked = self._asked(query)
        self._check(asked, mix)
        cosines = {part: self._cosines(part, getattr(asked, part)) for part in PARTS}
        ranked, row = ((1 - mix) * cosines["look"] + mix * cosines["motion"]).max(1)
        ranked[self._own(query, asked, apart)] = -torch.inf
        best, numbers = ranked.topk(min(top, len(self)))
        found = [
            Found(self._moments[i], score, *(float(cosines[part][i, row[i]]) for part in PARTS))
            for score, i in zip(best.tolist(), numbers.tolist(), strict=True)
            if score > -torch.inf
        ]
        return sorted(found, key=lambda one: (-one.similarity, one.moment.path, one.moment.start))

    def _asked(self, query: str | Query) -> Query:
        if isinstance(query, Query):
            return query
        number = self._numbers[query]
        look, motion = (self._vectors[part][number : number + 1].numpy() for part in PARTS)
        return Query(look, motion, self._moments[number].path)

    def _check(self, asked: Query, mix: float) -> None:
        for part, share in (("look", 1 - mix), ("motion", mix)):
            there, given = self._vectors[part].shape[1], getattr(asked, part).shape[1]  # type: ignore[index]
            if there != given:
                raise StillmotionError(f"a {part} of {given} channels among those of {there}; ask the index's encoder")
            if share and not there:
                raise StillmotionError(f"{self.encoder} sees no {part}; search by the other alone")

    def _cosines(self, part: Part, rows: np.ndarray) -> torch.Tensor:
        """Of all moments to those of the query, (n, q); zeros where there are no vectors."""
        return self._vectors[part] @ torch.from_numpy(np.ascontiguousarray(rows)).mT

    def _own(self, query: str | Query, asked: Query, apart: bool) -> slice:
        """The moments that are not to be found, which lie side by side."""
        if not apart:
            number = self._numbers[query] if isinstance(query, str) else 0
            return slice(number, number + isinstance(query, str))
        return self._paths.get(asked.path or "", slice(0, 0))

    @cached_property
    def _light(self) -> pa.Table:
        with reading(self.address):
            return self._tables.light()

    @cached_property
    def _moments(self) -> list[Moment]:
        return [Moment(**row) for row in self._light.to_pylist()]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {moment.id: number for number, moment in enumerate(self._moments)}

    @cached_property
    def _paths(self) -> dict[str, slice]:
        found: dict[str, slice] = {}
        for number, moment in enumerate(self._moments):
            found[moment.path] = slice(found.get(moment.path, slice(number, 0)).start, number + 1)
        return found

    @cached_property
    def _vectors(self) -> dict[Part, torch.Tensor]:
        return {part: self._read(part) for part in PARTS}

    def _read(self, part: Part) -> torch.Tensor:
        """The vectors of a part in the order of the moments, without a second copy in memory."""
        found = np.zeros((len(self), self._tables.width(part)), np.float32)
        if found.size:
            with reading(self.address):
                for batch in self._tables.batches(["id", part]):
                    places = [self._numbers[id] for id in batch["id"].to_pylist()]
                    found[places] = batch[part].flatten().to_numpy().reshape(len(places), -1)
        return torch.from_numpy(found)
