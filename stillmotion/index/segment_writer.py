"""Embed segments in batches and commit them periodically; a video is complete when all its segments are stored."""

import time
from collections.abc import Callable, Sequence

from stillmotion.encoders import Encoder
from stillmotion.index.segment_embedder import DecodedSegment, SegmentEmbedder
from stillmotion.index.storage.segment_rows import CompletedVideo, SegmentRow

_COMMIT_ROWS, _COMMIT_SECONDS = 64, 15.0  # segments, or seconds, after which rows are committed
# Stores segments and then marks videos as completed; `IndexTables.commit` is one.
CommitFunction = Callable[[Sequence[SegmentRow], Sequence[CompletedVideo]], object]


class SegmentWriter:
    """Embed segments and commit them.

    Args:
        commit: Function that stores segments and completed videos.
        encoder: The encoder.
    """

    def __init__(self, commit: CommitFunction, encoder: Encoder) -> None:
        self._commit, self._embedder = commit, SegmentEmbedder(encoder)
        self._pending: list[tuple[DecodedSegment, str]] = []
        self._rows: list[SegmentRow] = []
        self._finished: list[CompletedVideo] = []
        self._last_commit = time.monotonic()

    def add(self, segment: DecodedSegment, fingerprint: str) -> None:
        """Add a segment.

        Args:
            segment: The segment.
            fingerprint: Fingerprint of its video.
        """
        self._pending.append((segment, fingerprint))
        if len(self._pending) == self._embedder.batch_size:
            self._embed()
            self._flush_if_due()

    def finish_video(self, video: CompletedVideo) -> None:
        """Mark a video whose last segment was added; segments of a failed video are dropped."""
        if video.failure:
            self._pending = [pending for pending in self._pending if pending[0].segment.path != video.path]
            self._rows = [row for row in self._rows if row.segment.path != video.path]
        self._finished.append(video)
        self._flush_if_due()

    def close(self) -> None:
        """Embed and commit what is left."""
        if self._pending:
            self._embed()
        self._flush()

    def _embed(self) -> None:
        vectors = zip(*self._embedder([segment.clips for segment, _ in self._pending]), strict=True)
        for (segment, fingerprint), (appearance, motion, field) in zip(self._pending, vectors, strict=True):
            self._rows.append(SegmentRow(segment.segment, fingerprint, appearance, motion, segment.thumbnail, field))
        self._pending.clear()

    def _flush_if_due(self) -> None:
        if len(self._rows) >= _COMMIT_ROWS or time.monotonic() - self._last_commit > _COMMIT_SECONDS:
            self._flush()

    def _flush(self) -> None:
        incomplete = {segment.segment.path for segment, _ in self._pending}
        self._commit(self._rows, [video for video in self._finished if video.path not in incomplete])
        self._rows.clear()
        self._finished = [video for video in self._finished if video.path in incomplete]
        self._last_commit = time.monotonic()
