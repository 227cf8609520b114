"""What is searched for: a video, or a moment of it, as the vectors of an index."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillmotion.data.moments import Cutting, Span, moment, spans
from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder
from stillmotion.evaluate.search import steps_between
from stillmotion.index.showing import Embedder, Piece, pieces


@dataclass(frozen=True)
class Query:
    """Unit vectors of what is searched for; of several moments, a found one is as alike as to the most alike of them.

    look: (q, D), motion: (q, M). path: of its own video in the index, whose moments are left out; None: it is in none.
    thumbnail: of the first moment, WebP.
    """

    look: np.ndarray
    motion: np.ndarray
    path: str | None = None
    thumbnail: bytes = b""


def embed_query(
    encoder: Encoder,
    video: str | Path,
    *,
    start: float | None = None,
    end: float | None = None,
    cutting: Cutting | None = None,
) -> Query:
    """A video as a query: from `start` to `end` as one moment, in seconds; without them, cut as an index cuts it."""
    opened = open_video(video)
    if start is None and end is None:
        parts = spans(opened, cutting or Cutting())
    else:
        parts = [Span(*steps_between(opened, start, end, name=str(video)))]
    named = [(span, moment("", "", opened, span)) for span in parts]
    embedder, found = Embedder(encoder), []
    waiting: list[Piece] = []
    thumbnail = b""
    for piece in pieces(opened, named, embedder.intake):
        thumbnail = thumbnail or piece.thumbnail
        waiting.append(piece)
        if len(waiting) == embedder.batch:
            found.append(embedder([piece.clip for piece in waiting]))
            waiting.clear()
    if waiting:
        found.append(embedder([piece.clip for piece in waiting]))
    look, motion = (np.concatenate(vectors) for vectors in zip(*found, strict=True))
    return Query(look, motion, thumbnail=thumbnail)
