"""Named tables that plugins extend by entry points: objectives, data sets, kinds of encoders, loggers, verbs.

An installed package adds an item by an entry point of the table's group, such as

    [project.entry-points."stillmotion.objectives"]
    mine = "my_package:MyConfig"

(docs/guides/extending.md). It is imported when it is first used.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from stillmotion.errors import StillmotionError

Item = TypeVar("Item")


class Registry(Mapping[str, Item], Generic[Item]):
    """Named items: built-in ones and those that plugins add by entry points; a built-in name cannot be replaced.

    Args:
        item_name: What an item is called in messages, such as "objective".
        entry_point_group: Group of the entry points, without "stillmotion.".
        builtin: Built-in items by name. A string "module:name" is imported when the item is first used.
    """

    def __init__(self, item_name: str, entry_point_group: str, builtin: Mapping[str, Item | str]) -> None:
        self.item_name, self.entry_point_group = item_name, f"stillmotion.{entry_point_group}"
        self.builtin = dict(builtin)

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        return {
            point.name: point for point in entry_points(group=self.entry_point_group) if point.name not in self.builtin
        }

    @cached_property
    def _loaded(self) -> dict[str, Item]:
        return {name: item for name, item in self.builtin.items() if not isinstance(item, str)}

    def __getitem__(self, name: str) -> Item:
        if name not in self._loaded:
            row = self.builtin.get(name)
            if isinstance(row, str):
                self._loaded[name] = import_object(row)
            else:
                self._loaded[name] = _load_entry_point(self._entry_points[name], self.item_name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter([*self.builtin, *self._entry_points])

    def __len__(self) -> int:
        return len(self.builtin) + len(self._entry_points)

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self._entry_points

    def lookup(self, name: str) -> Item:
        """Return an item; raise with suggestions if the name is unknown."""
        if name not in self:
            raise StillmotionError(f"there is no {self.item_name} {name!r}{did_you_mean(name, self)}")
        return self[name]


def did_you_mean(name: str, known_names: Iterable[str], *, fallback: str = "") -> str:
    """Format a did-you-mean hint that follows "there is no …".

    Args:
        name: The unknown name.
        known_names: Names that exist.
        fallback: Text in place of the list of all names, where these are many.
    """
    names = list(known_names)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return f"; did you mean {' or '.join(close)}?"
    return f"; {fallback}" if fallback else f"; choose one of {', '.join(names)}"


def import_object(path: str) -> Any:
    """Import an object by a path such as "stillmotion.methods.simclr:SimCLRConfig"."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _load_entry_point(entry_point: EntryPoint, item_name: str) -> Any:
    try:
        return entry_point.load()
    except Exception as error:  # somebody else's package may fail in any way
        where = f"{entry_point.value} of {entry_point.dist.name}" if entry_point.dist else entry_point.value
        raise StillmotionError(f"the {item_name} {entry_point.name!r} cannot be loaded from {where}: {error}") from None
