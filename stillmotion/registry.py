"""Tables that can be added to: objectives, data sets, kinds of encoders, loggers, verbs, each in one place by name.

A package that is installed beside stillmotion adds a row by an entry point of the table's group, such as

    [project.entry-points."stillmotion.objectives"]
    mine = "my_package:MyConfig"

(docs/extending.md). What it names is imported when it is asked for.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from stillmotion.errors import StillmotionError

Row = TypeVar("Row")


class Registry(Mapping[str, Row], Generic[Row]):
    """Rows by name: this library's own, and those that installed packages add; ours win where names are the same.

    what: a row, in a word. group: of the entry points, behind "stillmotion.".
    """

    def __init__(self, what: str, group: str, own: Mapping[str, Row]) -> None:
        self.what, self.group, self.own = what, f"stillmotion.{group}", dict(own)

    @cached_property
    def _added(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group) if point.name not in self.own}

    @cached_property
    def _loaded(self) -> dict[str, Row]:
        return dict(self.own)

    def __getitem__(self, name: str) -> Row:
        if name not in self._loaded:
            self._loaded[name] = _loaded(self._added[name], self.what)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.own, *self._added])

    def __len__(self) -> int:
        return len(self.own) + len(self._added)

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self._added

    def named(self, name: str) -> Row:
        """The row of this name; an error that suggests the nearest where there is none."""
        if name not in self:
            raise StillmotionError(f"there is no {self.what} {name!r}{suggestion(name, self)}")
        return self[name]


def suggestion(word: str, known: Iterable[str], *, all_of_them: str = "") -> str:
    """What may have been meant, to stand behind "there is no …": the nearest names, or else what there is.

    all_of_them: said in place of all names, where they are many.
    """
    names = list(known)
    close = difflib.get_close_matches(word, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; {all_of_them}" if all_of_them else f"; choose one of {', '.join(names)}"


def _loaded(point: EntryPoint, what: str) -> Any:
    try:
        return point.load()
    except Exception as error:  # somebody else's package may fail in any way
        where = f"{point.value} of {point.dist.name}" if point.dist else point.value
        raise StillmotionError(f"the {what} {point.name!r} cannot be loaded from {where}: {error}") from None
