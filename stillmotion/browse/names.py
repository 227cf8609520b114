"""The names that people give to groups, kept beside the index and never among the videos.

A name is kept with the moments that it was given to: groups are found anew when videos come and go, and a group takes
the name of the one that it shares most with.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.files import read_json, write_json

FILE = "names.json"
LONGEST = 80  # letters
_SAME = 0.5  # of all moments in either, those that are in both


class Names:
    """The names of groups of the index in a folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._one = threading.Lock()

    def of(self, aspect: str, groups: Sequence[Sequence[str]]) -> list[str]:
        """The name of each group, given by the ids of its moments; empty where it has none. A name is given once."""
        named = self._read().get(aspect, [])
        shared = [
            (_overlap(set(group), set(kept["moments"])), g, k)
            for g, group in enumerate(groups)
            for k, kept in enumerate(named)
        ]
        found, taken = [""] * len(groups), set()
        for overlap, g, k in sorted(shared, reverse=True):
            if overlap >= _SAME and not found[g] and k not in taken:
                found[g] = named[k]["name"]
                taken.add(k)
        return found

    def give(self, aspect: str, groups: Sequence[Sequence[str]], number: int, name: str) -> None:
        """Name the group with this number; an empty name takes the old one away."""
        name = " ".join(name.split())
        if len(name) > LONGEST:
            raise StillmotionError(f"a name of {len(name)} letters; give one of at most {LONGEST}")
        with self._one:
            names = self.of(aspect, groups)
            names[number] = name
            kept = [{"name": n, "moments": list(g)} for n, g in zip(names, groups, strict=True) if n]
            write_json(self._file, self._read() | {aspect: kept})

    def _read(self) -> dict[str, Any]:
        try:
            return read_json(self._file, remedy="remove it, and name the groups again")
        except FileNotFoundError:
            return {}


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))
