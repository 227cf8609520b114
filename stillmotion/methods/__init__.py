"""Self-supervised methods: objectives, views, the static/dynamic decomposition, and image-to-video transfer."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
