"""`stillmotion search` over an index: the moments most alike to a video, or to a moment of it."""

from dataclasses import replace
from pathlib import Path

from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError
from stillmotion.index.query import Query, embed_query
from stillmotion.index.search_backends import SearchResult
from stillmotion.index.search_config import SearchConfig
from stillmotion.index.video_index import VideoIndex
from stillmotion.index.video_segments import VideoSegmentConfig
from stillmotion.utils.formatting import printable_name

_DEFAULT_MOTION_WEIGHT = 0.5
_WEIGHT_OF = {"appearance": 0.0, "static": 0.0, "motion": 1.0}


def search_index(
    index: VideoIndex, encoder: Encoder, video: str | Path, config: SearchConfig
) -> tuple[Query, list[SearchResult]]:
    """The video as a query, and what is found; moments of the video itself, where it is in the index, are left out."""
    mix = resolve_motion_weight(config)
    cutting = VideoSegmentConfig(**index.metadata.settings["segmentation"])
    query = embed_query(encoder, video, start=config.start, end=config.end, segmentation=cutting)
    place = Path(video).resolve()
    if place.is_relative_to(index.videos_dir):
        query = replace(query, video_path=printable_name(place.relative_to(index.videos_dir).as_posix()))
    return query, index.neighbors(query, motion_weight=mix, top_k=config.top_k)


def resolve_motion_weight(config: SearchConfig) -> float:
    """The share of motion in what is asked of an index."""
    if config.motion_weight is not None or config.by is None:
        return _DEFAULT_MOTION_WEIGHT if config.motion_weight is None else config.motion_weight
    if config.by not in _WEIGHT_OF:
        raise StillmotionError(
            f"an index holds appearance and motion, not {config.by}; search by one, or by --motion-weight for both"
        )
    return _WEIGHT_OF[config.by]
