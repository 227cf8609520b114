"""What is searched for: a video, or a moment of it, as the vectors of an index."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stillmotion.data.video import open_video
from stillmotion.encoders import Encoder
from stillmotion.index.folder_search import time_range_to_frames
from stillmotion.index.segment_embedder import DecodedSegment, SegmentEmbedder, decode_segments
from stillmotion.index.video_segments import FrameRange, VideoSegmentConfig, make_segment, segment_video


@dataclass(frozen=True)
class Query:
    """Unit vectors of what is searched for; of several moments, a found one is as alike as to the most alike of them.

    appearance: (q, D), motion: (q, M). path: of its own video in the index, whose moments are left out; None: it is in none.
    thumbnail: of the first moment, WebP.
    """

    appearance: np.ndarray
    motion: np.ndarray
    video_path: str | None = None
    thumbnail: bytes = b""


def embed_query(
    encoder: Encoder,
    video: str | Path,
    *,
    start: float | None = None,
    end: float | None = None,
    segmentation: VideoSegmentConfig | None = None,
) -> Query:
    """A video as a query: from `start` to `end` as one moment, in seconds; without them, cut as an index cuts it."""
    opened = open_video(video)
    if start is None and end is None:
        parts = segment_video(opened, segmentation or VideoSegmentConfig())
    else:
        parts = [FrameRange(*time_range_to_frames(opened, start, end, name=str(video)))]
    named = [(span, make_segment("", "", opened, span)) for span in parts]
    embedder, found = SegmentEmbedder(encoder), []
    waiting: list[DecodedSegment] = []
    thumbnail = b""
    for piece in decode_segments(opened, named, embedder.input_config):
        thumbnail = thumbnail or piece.thumbnail
        waiting.append(piece)
        if len(waiting) == embedder.batch_size:
            found.append(embedder([piece.clip for piece in waiting]))
            waiting.clear()
    if waiting:
        found.append(embedder([piece.clip for piece in waiting]))
    look, motion = (np.concatenate(vectors) for vectors in zip(*found, strict=True))
    return Query(look, motion, thumbnail=thumbnail)
