"""What is said of videos that are shown all the same: those that can be read in part, and those that are short."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


def say(line: str) -> None:
    """One line on stderr, apart from the results."""
    print(f"stillmotion: {line}", file=sys.stderr)


class Notes:
    """What batches tell, each thing once."""

    def __init__(self) -> None:
        self._partly: set[str] = set()
        self._short: set[str] = set()
        self._counted = False

    def take(self, batch: Mapping[str, Any]) -> Iterator[str]:
        """Lines about what is new in a batch."""
        yield from batch.get("notes", ())
        for name, words in batch.get("partly", ()):
            if name not in self._partly:
                self._partly.add(name)
                yield f"{name}: {words}"
        self._short.update(batch.get("short", ()))

    def join(self, others: "Notes") -> None:
        """Count what the batches of another process told, too."""
        self._short |= others._short

    def short(self, videos: int) -> Iterator[str]:
        """A line about how many of so many videos are too short for a clip, the first time that some are."""
        if self._short and not self._counted:
            self._counted = True
            yield f"{len(self._short)} of {videos} videos are much shorter than a clip, and repeat their last frame"


def told(batches: Iterable[dict[str, Any]], *, videos: int, say: Callable[[str], object]) -> Iterator[dict[str, Any]]:
    """The batches, and to `say` what they tell. videos: how many there are in all."""
    notes = Notes()
    for batch in batches:
        for line in notes.take(batch):
            say(line)
        yield batch
    for line in notes.short(videos):
        say(line)
