"""A video as query vectors, and the search of an index by a video."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stillmotion.data.video import open_video
from stillmotion.errors import StillmotionError
from stillmotion.index.search.config import SearchConfig
from stillmotion.index.video_segments import VideoSegmentConfig, make_segment, segment_video, time_range_to_frames
from stillmotion.utils.formatting import printable_name

if TYPE_CHECKING:
    from stillmotion.encoders import Encoder
    from stillmotion.index.search.backends import SearchResult
    from stillmotion.index.video_index import VideoIndex

_DEFAULT_MOTION_WEIGHT = 0.5
_WEIGHT_OF = {"appearance": 0.0, "static": 0.0, "motion": 1.0}


@dataclass(frozen=True)
class Query:
    """Unit vectors to search by. A result is as similar as it is to the most similar of the query's segments.

    Attributes:
        appearance: Appearance vectors (q, D).
        motion: Motion vectors (q, M).
        motion_field: Motion fields, int8 (q, F), which are compared under alignment; None compares motion vectors.
        video_path: Path of the query's video in the index, whose segments are left out; None if it is not in the index.
        thumbnail: Thumbnail of the first segment as WebP.
    """

    appearance: np.ndarray
    motion: np.ndarray
    motion_field: np.ndarray | None = None
    video_path: str | None = None
    thumbnail: bytes = b""


def embed_query(
    encoder: "Encoder",
    video: str | Path,
    *,
    start: float | None = None,
    end: float | None = None,
    segmentation: VideoSegmentConfig | None = None,
) -> Query:
    """Embed a video as a query.

    Args:
        encoder: The encoder of the index.
        video: Video file or folder of frames.
        start: Start of the query segment in seconds; with `start` or `end` the query is one segment.
        end: End of the query segment in seconds.
        segmentation: How the whole video is split into segments otherwise.
    """
    from stillmotion.index.segment_embedder import DecodedSegment, SegmentEmbedder, decode_segments

    opened = open_video(video)
    if start is None and end is None:
        ranges = segment_video(opened, segmentation or VideoSegmentConfig())
    else:
        ranges = [time_range_to_frames(opened, start, end, name=str(video))]
    segments = [(frames, make_segment("", "", opened, frames)) for frames in ranges]
    embedder, vectors = SegmentEmbedder(encoder), []
    pending: list[DecodedSegment] = []
    thumbnail = b""
    for segment in decode_segments(opened, segments, embedder.inputs):
        thumbnail = thumbnail or segment.thumbnail
        pending.append(segment)
        if len(pending) == embedder.batch_size:
            vectors.append(embedder([segment.clips for segment in pending]))
            pending.clear()
    if pending:
        vectors.append(embedder([segment.clips for segment in pending]))
    appearance, motion, field = (np.concatenate(rows) for rows in zip(*vectors, strict=True))
    return Query(appearance, motion, field if field.shape[1] else None, thumbnail=thumbnail)


def search_index(
    index: "VideoIndex", encoder: "Encoder", video: str | Path, config: SearchConfig
) -> "tuple[Query, list[SearchResult]]":
    """Search an index by a video.

    Args:
        index: The index.
        encoder: The encoder of the index.
        video: Query video.
        config: What to rank by, the query segment and the number of results.

    Returns:
        The query and the results, best first; segments of the query video itself are left out.

    Raises:
        StillmotionError: If the index is empty, or stores no such vectors.
    """
    motion_weight = resolve_motion_weight(config)
    if not len(index):
        raise StillmotionError(
            f"the index {index.uri} is empty, because no video in {printable_name(str(index.videos_dir))} could be "
            "read; index another folder"
        )
    query = embed_query(encoder, video, start=config.start, end=config.end, segmentation=index.segmentation)
    path = Path(video).resolve()
    if path.is_relative_to(index.videos_dir):
        query = replace(query, video_path=printable_name(path.relative_to(index.videos_dir).as_posix()))
    return query, index.neighbors(query, motion_weight=motion_weight, top_k=config.top_k)


def resolve_motion_weight(config: SearchConfig) -> float:
    """Return the weight of motion in a search of an index.

    Raises:
        StillmotionError: If an index does not store what to rank by.
    """
    if config.motion_weight is not None or config.by is None:
        return _DEFAULT_MOTION_WEIGHT if config.motion_weight is None else config.motion_weight
    if config.by not in _WEIGHT_OF:
        raise StillmotionError(
            f"the index stores appearance and motion vectors, not {config.by}; use --by appearance, --by motion or "
            "--motion-weight"
        )
    return _WEIGHT_OF[config.by]
