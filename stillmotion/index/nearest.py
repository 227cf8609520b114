"""The two ways to find what is near: all vectors in memory, or LanceDB's index of those that are too many for that.

Shapes: n moments, D channels; q moments of a query.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from stillmotion.data.moments import Moment
from stillmotion.errors import StillmotionError
from stillmotion.index.query import Query
from stillmotion.index.table import LIGHT, PARTS, Part, Tables, quoted

LARGE = 100_000  # moments from which on an index by cells is made and asked
# Candidates of each part: at least so many, so many times what is asked for, and one of so many moments: the more there
# are, the further from the best by one part lies what is best by both.
_MANY, _TIMES, _ONE_OF = 256, 4, 1000
_PROBES, _REFINED = 40, 4  # cells that are looked into, and how many times as many are compared exactly
_ROWS = 8  # of a query's moments that are asked one by one


class Found(NamedTuple):
    """A moment, what it was ranked by, and its cosines by look and by motion."""

    moment: Moment
    similarity: float
    look: float
    motion: float


class Scan:
    """Everything but the thumbnails in memory, in the order of path and start; what is asked is compared with all."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.moments = [Moment(**row) for row in tables.light().to_pylist()]
        self.numbers = {moment.id: number for number, moment in enumerate(self.moments)}

    def vectors(self, part: Part) -> torch.Tensor:
        """The unit vectors (n, D) of a part; (n, 0) where there are none."""
        return self._vectors[part]

    def asked(self, id: str) -> Query:
        """A moment of the index as a query; KeyError where there is none of this id."""
        number = self.numbers[id]
        look, motion = (self._vectors[part][number : number + 1].numpy() for part in PARTS)
        return Query(look, motion, self.moments[number].path)

    def near(self, query: Query, *, mix: float, top: int, without: str | None) -> list[Found]:
        """The `top` most alike, but for those of the path of the query and for the id `without`."""
        cosines = [self._cosines(part, getattr(query, part)) for part in PARTS]
        ranked, best = ((1 - mix) * cosines[0] + mix * cosines[1]).max(1)
        ranked[self._paths.get(query.path or "", slice(0, 0))] = -torch.inf
        if without is not None:
            ranked[self.numbers[without]] = -torch.inf
        scores, numbers = ranked.topk(min(top, len(ranked)))
        return ordered(
            Found(self.moments[i], score, *(float(of[i, best[i]]) for of in cosines))
            for score, i in zip(scores.tolist(), numbers.tolist(), strict=True)
            if score > -torch.inf
        )

    def _cosines(self, part: Part, rows: np.ndarray) -> torch.Tensor:
        """Of all moments to those of the query, (n, q); zeros where there are no vectors."""
        return self._vectors[part] @ torch.from_numpy(np.ascontiguousarray(rows)).mT

    @cached_property
    def _vectors(self) -> dict[Part, torch.Tensor]:
        return {part: self._read(part) for part in PARTS}

    def _read(self, part: Part) -> torch.Tensor:
        """Vectors in the order of the moments, without a second copy in memory."""
        found = np.zeros((len(self.moments), self._tables.width(part)), np.float32)
        for batch in self._tables.batches(["id", part]) if found.size else ():
            places = [self.numbers[id] for id in batch["id"].to_pylist()]
            found[places] = rows_of(batch[part])
        return torch.from_numpy(found)

    @cached_property
    def _paths(self) -> dict[str, slice]:
        found: dict[str, slice] = {}
        for number, moment in enumerate(self.moments):
            found[moment.path] = slice(found.get(moment.path, slice(number, 0)).start, number + 1)
        return found


class Probe:
    """The table as it lies on the disk: candidates by look and by motion from their cells, compared exactly."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def asked(self, id: str) -> Query:
        """As in `Scan`."""
        found = self._tables.rows([id], ["path", *self._parts])
        if not found.num_rows:
            raise KeyError(id)
        none = np.zeros((1, 0), np.float32)
        look, motion = (rows_of(found[part]) if part in self._parts else none for part in PARTS)
        return Query(look, motion, found["path"][0].as_py())

    def near(self, query: Query, *, mix: float, top: int, without: str | None) -> list[Found]:
        """As in `Scan`, of the candidates of both parts."""
        limits = [f"path != {quoted(query.path)}"] * (query.path is not None)
        limits += [f"id != {quoted(without)}"] * (without is not None)
        shares = {"look": 1 - mix, "motion": mix}
        candidates: dict[str, Found] = {}
        wanted = max(_MANY, _TIMES * top, len(self._tables) // _ONE_OF)
        for part in (part for part in self._parts if shares[part]):
            for row in getattr(query, part)[:_ROWS]:
                asked = self._tables.moments.search(row, vector_column_name=part).distance_type("cosine")
                asked = asked.nprobes(_PROBES).refine_factor(_REFINED).limit(wanted)
                asked = asked.where(" AND ".join(limits), prefilter=True) if limits else asked
                found = asked.select([*LIGHT, *self._parts, "_distance"]).to_arrow()
                cosines = [
                    rows_of(found[name]) @ getattr(query, name).T if name in self._parts else np.zeros((len(found), 1))
                    for name in PARTS
                ]
                ranked = (1 - mix) * cosines[0] + mix * cosines[1]
                for number, moment in enumerate(found.select(LIGHT).to_pylist()):
                    best = int(ranked[number].argmax())
                    similarities = (float(of[number, min(best, of.shape[1] - 1)]) for of in (ranked, *cosines))
                    candidates[moment["id"]] = Found(Moment(**moment), *similarities)
        return ordered(candidates.values())[:top]

    @property
    def _parts(self) -> Sequence[Part]:
        return [part for part in PARTS if self._tables.width(part)]


def check(query: Query, tables: Tables, mix: float) -> None:
    """Raises where a query is of other vectors, or where what it is to be ranked by is not there."""
    if not 0 <= mix <= 1:
        raise StillmotionError(f"mix is {mix}; it lies between 0, by look, and 1, by motion")
    shares: dict[Part, float] = {"look": 1 - mix, "motion": mix}
    for part, share in shares.items():
        there, given = tables.width(part), getattr(query, part).shape[1]
        if len(tables) and there != given:
            raise StillmotionError(f"a {part} of {given} channels among those of {there}; ask the index's own encoder")
        if len(tables) and share and not there:
            raise StillmotionError(f"{tables.about.encoder} sees no {part}; search by the other alone")


def ordered(found: Iterable[Found]) -> list[Found]:
    """Best first; of equals, by path and start."""
    return sorted(found, key=lambda one: (-one.similarity, one.moment.path, one.moment.start))


def rows_of(column: Any) -> np.ndarray:
    """A column of vectors, of a batch or of a table, as an array (n, D)."""
    flat = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return flat.flatten().to_numpy().reshape(len(flat), -1)
