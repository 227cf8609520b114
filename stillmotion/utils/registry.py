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

Item = TypeVar("Item")


class Registry(Mapping[str, Item], Generic[Item]):
    """Rows by name: this library's own, and those that installed packages add; ours win where names are the same.

    item_name: a row, in a word. group: of the entry points, behind "stillmotion.".
    """

    def __init__(self, item_name: str, entry_point_group: str, builtin: Mapping[str, Item]) -> None:
        self.item_name, self.entry_point_group, self.builtin = (
            item_name,
            f"stillmotion.{entry_point_group}",
            dict(builtin),
        )

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {
            point.name: point for point in entry_points(group=self.entry_point_group) if point.name not in self.builtin
        }

    @cached_property
    def _loaded(self) -> dict[str, Item]:
        return dict(self.builtin)

    def __getitem__(self, name: str) -> Item:
        if name not in self._loaded:
            self._loaded[name] = _load_entry_point(self._entry_points[name], self.item_name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.builtin, *self._entry_points])

    def __len__(self) -> int:
        return len(self.builtin) + len(self._entry_points)

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._entry_points

    def lookup(self, name: str) -> Item:
        """The row of this name; an error that suggests the nearest where there is none."""
        if name not in self:
            raise StillmotionError(f"there is no {self.item_name} {name!r}{did_you_mean(name, self)}")
        return self[name]


def did_you_mean(name: str, known_names: Iterable[str], *, fallback: str = "") -> str:
    """What may have been meant, to stand behind "there is no …": the nearest names, or else what there is.

    fallback: said in place of all names, where they are many.
    """
    names = list(known_names)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; {fallback}" if fallback else f"; choose one of {', '.join(names)}"


def _load_entry_point(entry_point: EntryPoint, item_name: str) -> Any:
    try:
        return entry_point.load()
    except Exception as error:  # somebody else's package may fail in any way
        where = f"{entry_point.value} of {entry_point.dist.name}" if entry_point.dist else entry_point.value
        raise StillmotionError(f"the {item_name} {entry_point.name!r} cannot be loaded from {where}: {error}") from None
