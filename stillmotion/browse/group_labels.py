"""Names that users give to groups, stored in the index folder.

A name is stored with the segments of its group. Groups are computed again when videos come and go; a group then
takes the name of the stored group that it overlaps most.
"""

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillmotion.errors import StillmotionError
from stillmotion.utils.files import read_json, write_json

logger = logging.getLogger(__name__)

LABELS_FILE = "group_labels.json"
MAX_LABEL_LENGTH = 80  # characters
_HINT = "delete it, and name the groups again"
_MIN_OVERLAP = 0.5  # intersection over union


class GroupLabels:
    """Names of the groups of an index.

    Args:
        folder: Folder of the index.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / LABELS_FILE
        self._lock = threading.Lock()

    def labels_for(self, vector_name: str, groups: Sequence[Sequence[str]]) -> list[str]:
        """Return the name of each group, empty if it has none; each stored name is used once.

        Args:
            vector_name: Vectors that the groups were computed from.
            groups: Ids of the segments of each group.
        """
        try:
            stored = self._read().get(vector_name, [])
        except StillmotionError as error:
            logger.warning(str(error))
            stored = []
        overlaps = [
            (_overlap(set(group), set(entry["segment_ids"])), g, s)
            for g, group in enumerate(groups)
            for s, entry in enumerate(stored)
        ]
        labels, used = [""] * len(groups), set()
        for overlap, g, s in sorted(overlaps, reverse=True):
            if overlap >= _MIN_OVERLAP and not labels[g] and s not in used:
                labels[g] = stored[s]["name"]
                used.add(s)
        return labels

    def set_label(self, vector_name: str, groups: Sequence[Sequence[str]], number: int, label: str) -> None:
        """Name a group.

        Args:
            vector_name: Vectors that the groups were computed from.
            groups: Ids of the segments of each group.
            number: Number of the group.
            label: Its name; an empty one removes it.
        """
        label = " ".join(label.split())
        if len(label) > MAX_LABEL_LENGTH:
            raise StillmotionError(f"the name has {len(label)} characters; at most {MAX_LABEL_LENGTH} are allowed")
        with self._lock:
            labels = self.labels_for(vector_name, groups)
            labels[number] = label
            entries = [{"name": n, "segment_ids": list(g)} for n, g in zip(labels, groups, strict=True) if n]
            write_json(self._file, self._read() | {vector_name: entries})

    def _read(self) -> dict[str, Any]:
        try:
            content = read_json(self._file, hint=_HINT)
        except FileNotFoundError:
            return {}
        if not isinstance(content, dict) or not all(_is_entry_list(entries) for entries in content.values()):
            raise StillmotionError(f"{self._file} does not hold the names of groups; {_HINT}")
        return content


def _is_entry_list(entries: Any) -> bool:
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and isinstance(entry.get("name"), str)
        and isinstance(entry.get("segment_ids"), list)
        and all(isinstance(id, str) for id in entry["segment_ids"])
        for entry in entries
    )


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(1, len(one | other))
