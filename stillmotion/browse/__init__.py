"""A local web page over an index: similar appearance, similar motion, a map, and groups that can be named."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
