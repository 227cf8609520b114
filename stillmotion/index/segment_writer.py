"""How moments get into the table: embedded some at a time, stored now and then, and never half a video as a whole."""

import time
from collections.abc import Callable, Sequence

from stillmotion.encoders import Encoder
from stillmotion.index.lance_tables import CompletedVideo, SegmentRow
from stillmotion.index.segment_embedder import DecodedSegment, SegmentEmbedder

_COMMIT_ROWS, _COMMIT_SECONDS = 64, 15.0  # moments, or seconds, after which what there is is stored
# Stores moments and, when these are stored, videos that are done.
CommitFunction = Callable[[Sequence[SegmentRow], Sequence[CompletedVideo]], object]


class SegmentWriter:
    """Embeds moments as they come and has them stored; a video is done when all of its moments are.

    commit: by which; `Tables.keep` is one.
    """

    def __init__(self, commit: CommitFunction, encoder: Encoder) -> None:
        self._commit, self._embedder = commit, SegmentEmbedder(encoder)
        self._pending: list[tuple[DecodedSegment, str]] = []
        self._rows: list[SegmentRow] = []
        self._finished: list[CompletedVideo] = []
        self._last_commit = time.monotonic()

    def add(self, segment: DecodedSegment, fingerprint: str) -> None:
        """A moment of a video of this fingerprint."""
        self._pending.append((segment, fingerprint))
        if len(self._pending) == self._embedder.batch_size:
            self._embed()
            self._flush_if_due()

    def finish_video(self, video: CompletedVideo) -> None:
        """There are no more moments of this video; one that was passed over after all has none."""
        if video.failure:
            self._pending = [one for one in self._pending if one[0].segment.path != video.path]
            self._rows = [row for row in self._rows if row.segment.path != video.path]
        self._finished.append(video)
        self._flush_if_due()

    def close(self) -> None:
        """Store what is left."""
        if self._pending:
            self._embed()
        self._flush()

    def _embed(self) -> None:
        looks, motions = self._embedder([piece.clip for piece, _ in self._pending])
        for (piece, fingerprint), look, motion in zip(self._pending, looks, motions, strict=True):
            self._rows.append(SegmentRow(piece.segment, fingerprint, look, motion, piece.thumbnail))
        self._pending.clear()

    def _flush_if_due(self) -> None:
        if len(self._rows) >= _COMMIT_ROWS or time.monotonic() - self._last_commit > _COMMIT_SECONDS:
            self._flush()

    def _flush(self) -> None:
        waiting = {piece.segment.path for piece, _ in self._pending}
        self._commit(self._rows, [video for video in self._finished if video.path not in waiting])
        self._rows.clear()
        self._finished = [video for video in self._finished if video.path in waiting]
        self._last_commit = time.monotonic()
