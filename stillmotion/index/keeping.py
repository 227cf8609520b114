"""How moments get into the table: embedded some at a time, stored now and then, and never half a video as a whole."""

import time
from collections.abc import Callable, Sequence

from stillmotion.encoders import Encoder
from stillmotion.index.showing import Embedder, Piece
from stillmotion.index.table import Done, Row

_ROWS, _SECONDS = 64, 15.0  # moments, or seconds, after which what there is is stored
_TIMED = 5.0  # seconds of work that the rest is foretold from


# Stores moments and, when these are stored, videos that are done.
Keep = Callable[[Sequence[Row], Sequence[Done]], object]


class Keeper:
    """Embeds moments as they come and has them stored; a video is done when all of its moments are.

    keep: by which; `Tables.keep` is one.
    """

    def __init__(self, keep: Keep, encoder: Encoder) -> None:
        self._keep, self._embedder = keep, Embedder(encoder)
        self._waiting: list[tuple[Piece, str]] = []
        self._rows: list[Row] = []
        self._ended: list[Done] = []
        self._stored = time.monotonic()

    def take(self, piece: Piece, fingerprint: str) -> None:
        """A moment of a video of this fingerprint."""
        self._waiting.append((piece, fingerprint))
        if len(self._waiting) == self._embedder.batch:
            self._embed()
            self._store_if_due()

    def end(self, video: Done) -> None:
        """There are no more moments of this video; one that was passed over after all has none."""
        if video.reason:
            self._waiting = [one for one in self._waiting if one[0].moment.path != video.path]
            self._rows = [row for row in self._rows if row.moment.path != video.path]
        self._ended.append(video)
        self._store_if_due()

    def close(self) -> None:
        """Store what is left."""
        if self._waiting:
            self._embed()
        self._store()

    def _embed(self) -> None:
        looks, motions = self._embedder([piece.clip for piece, _ in self._waiting])
        for (piece, fingerprint), look, motion in zip(self._waiting, looks, motions, strict=True):
            self._rows.append(Row(piece.moment, fingerprint, look, motion, piece.thumbnail))
        self._waiting.clear()

    def _store_if_due(self) -> None:
        if len(self._rows) >= _ROWS or time.monotonic() - self._stored > _SECONDS:
            self._store()

    def _store(self) -> None:
        waiting = {piece.moment.path for piece, _ in self._waiting}
        self._keep(self._rows, [video for video in self._ended if video.path not in waiting])
        self._rows.clear()
        self._ended = [video for video in self._ended if video.path in waiting]
        self._stored = time.monotonic()


class Clock:
    """Says after the first videos how long all of them take, from the sizes of their files.

    sizes: bytes of each video. say: told once. ranks: that have as many videos each.
    """

    def __init__(self, sizes: Sequence[int], say: Callable[[str], object], *, ranks: int = 1) -> None:
        self.videos, self._ranks = 0, ranks
        self._all, self._left, self._timed = len(sizes), sum(sizes), 0
        self._say, self._told, self._start = say, False, 0.0

    def step(self, size: int) -> None:
        """A video of this size is done."""
        self.videos += 1
        self._left -= size
        if self.videos == 1:  # which had to wait for everything to be loaded
            self._start = time.monotonic()
            return
        self._timed += size
        taken = time.monotonic() - self._start
        if not self._told and taken > _TIMED and self._timed and self.videos < self._all:
            self._told = True
            more = duration(taken / self._timed * self._left)
            self._say(f"about {more} for {(self._all - self.videos) * self._ranks} more videos")


def duration(seconds: float) -> str:
    """A time in words, as exactly as a forecast can be."""
    if seconds < 90:
        return f"{max(1, round(seconds))} seconds"
    if seconds < 5400:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
