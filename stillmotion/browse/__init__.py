"""A local web page over an index: similar appearance, similar motion, a map, and groups that can be named."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.browse.app import create_app as create_app
    from stillmotion.browse.open_index import open_or_build_index as open_or_build_index
    from stillmotion.browse.server import serve as serve

__getattr__, __all__ = lazy_exports(
    __name__, {"app": ("create_app",), "open_index": ("open_or_build_index",), "server": ("serve",)}
)
