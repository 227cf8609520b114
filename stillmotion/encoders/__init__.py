"""Encoders: load any network by its spec string, and embed videos with it."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
