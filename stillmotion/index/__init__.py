"""The search index: segments of videos with their appearance and motion vectors, on disk."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.index.builder import build_index as build_index
    from stillmotion.index.folder_search import search_folder as search_folder
    from stillmotion.index.locations import default_index_dir as default_index_dir
    from stillmotion.index.query import Query as Query
    from stillmotion.index.query import embed_query as embed_query
    from stillmotion.index.query import search_index as search_index
    from stillmotion.index.search_backends import SearchResult as SearchResult
    from stillmotion.index.search_config import SearchConfig as SearchConfig
    from stillmotion.index.video_index import VideoIndex as VideoIndex
    from stillmotion.index.video_segments import VideoSegment as VideoSegment
    from stillmotion.index.video_segments import VideoSegmentConfig as VideoSegmentConfig

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "builder": ("build_index",),
        "folder_search": ("search_folder",),
        "locations": ("default_index_dir",),
        "query": ("Query", "embed_query", "search_index"),
        "search_backends": ("SearchResult",),
        "search_config": ("SearchConfig",),
        "video_index": ("VideoIndex",),
        "video_segments": ("VideoSegment", "VideoSegmentConfig"),
    },
)
