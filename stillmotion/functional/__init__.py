"""Pure tensor maths: no state, no files."""

from stillmotion.utils.lazy_exports import lazy_exports

# Not `forward_warp`: the module has the name of its function.
__getattr__, __all__ = lazy_exports(__name__, __file__)
