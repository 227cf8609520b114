"""The search index: segments of videos with their appearance and motion vectors, on disk."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
