"""What is searched for: a video, or a moment of it, as the vectors of an index."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.index.moments import Cutting, Span, moment, spans
from stillmotion.index.showing import Embedder, Piece, pieces, spread


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
        lasts = len(opened) / opened.fps
        first, last = start or 0.0, lasts if end is None else end
        if not 0 <= first < last or first >= lasts:
            raise StillmotionError(f"{video} lasts {lasts:.2f} s; {first:g} to {last:g} is no moment of it")
        begin = min(int(first * opened.fps), len(opened) - 1)
        parts = [Span(begin, max(begin + 1, min(round(last * opened.fps), len(opened))))]
    shown = spread(encoder)
    named = [(span, moment("", "", opened, span)) for span in parts]
    embedder, found = Embedder(shown), []
    waiting: list[Piece] = []
    thumbnail = b""
    for piece in pieces(opened, named, shown.intake):
        thumbnail = thumbnail or piece.thumbnail
        waiting.append(piece)
        if len(waiting) == embedder.batch:
            found.append(embedder([piece.clip for piece in waiting]))
            waiting.clear()
    if waiting:
        found.append(embedder([piece.clip for piece in waiting]))
    look, motion = (np.concatenate(vectors) for vectors in zip(*found, strict=True))
    return Query(look, motion, thumbnail=thumbnail)
