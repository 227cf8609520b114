"""The names that people give to groups, kept beside the index and never among the videos.

A name is kept with the moments that it was given to: groups are found anew when videos come and go, and a group takes
the name of the one that it shares most with.
"""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.utils.files import read_json, write_json

LABELS_FILE = "group_labels.json"
MAX_LABEL_LENGTH = 80  # letters
_MIN_OVERLAP = 0.5  # of all moments in either, those that are in both


class GroupLabels:
    """The names of groups of the index in a folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / LABELS_FILE
        self._one = threading.Lock()

    def labels_for(self, vector_name: str, groups: Sequence[Sequence[str]]) -> list[str]:
        """The name of each group, given by the ids of its moments; empty where it has none. A name is given once."""
        named = self._read().get(vector_name, [])
        shared = [
            (_overlap(set(group), set(kept["segment_ids"])), g, k)
            for g, group in enumerate(groups)
            for k, kept in enumerate(named)
        ]
        found, taken = [""] * len(groups), set()
        for overlap, g, k in sorted(shared, reverse=True):
            if overlap >= _MIN_OVERLAP and not found[g] and k not in taken:
                found[g] = named[k]["name"]
                taken.add(k)
        return found

    def set_label(self, vector_name: str, groups: Sequence[Sequence[str]], number: int, label: str) -> None:
        """Name the group with this number; an empty name takes the old one away."""
        label = " ".join(label.split())
        if len(label) > MAX_LABEL_LENGTH:
            raise StillmotionError(f"a name of {len(label)} letters; give one of at most {MAX_LABEL_LENGTH}")
        with self._one:
            names = self.labels_for(vector_name, groups)
            names[number] = label
            kept = [{"name": n, "segment_ids": list(g)} for n, g in zip(names, groups, strict=True) if n]
            write_json(self._file, self._read() | {vector_name: kept})

    def _read(self) -> dict[str, Any]:
        try:
            return read_json(self._file, hint="remove it, and name the groups again")
        except FileNotFoundError:
            return {}


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))
