"""A verb's recipes: complete configurations by name, each with a line that says what it is and where it is from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from stillmotion.config import RunConfig
from stillmotion.errors import StillmotionError
from stillmotion.registry import suggestion

C = TypeVar("C", bound=RunConfig)


@dataclass(frozen=True)
class Recipe(Generic[C]):
    """A row: what builds the configuration, what it is in a line, and the paper's table that it is a row of."""

    build: Callable[[], C]
    about: str
    source: str = ""

    def twin(self, name: str, shrink: Callable[[C], C]) -> "Recipe[C]":
        """The debug twin of this row, which has that name."""
        return Recipe(partial(_shrunk, self.build, shrink), f"debug twin of {name}")


@dataclass(frozen=True)
class Recipes(Generic[C]):
    """All recipes of a verb, by name."""

    verb: str
    rows: Mapping[str, Recipe[C]]

    def named(self, name: str) -> C:
        """The configuration with this name."""
        if name not in self.rows:
            hint = suggestion(name, self.rows, all_of_them=f"`stillmotion {self.verb} --list` names all")
            raise StillmotionError(f"{self.verb} has no recipe {name!r}{hint}")
        return replace(self.rows[name].build(), recipe=name)

    def names(self) -> tuple[str, ...]:
        """All names that `named` takes."""
        return tuple(self.rows)

    def lines(self) -> list[str]:
        """What `--list` prints: each name, what it is, and its table in brackets."""
        column = max(map(len, self.rows))
        return [
            f"{name:{column}}  {row.about}" + (f" ({row.source})" if row.source else "")
            for name, row in self.rows.items()
        ]


def cited(paper: str, *tables: int) -> str:
    """A source, such as "BOD-VCL, Tables 3 and 5"; nothing where no table is given."""
    if len(tables) < 2:
        return "".join(f"{paper}, Table {table}" for table in tables)
    return f"{paper}, Tables {', '.join(map(str, tables[:-1]))} and {tables[-1]}"


def _shrunk(build: Callable[[], C], shrink: Callable[[C], C]) -> C:
    return shrink(build())
