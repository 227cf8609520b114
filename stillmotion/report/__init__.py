"""Self-contained HTML pages: blocks, the page writer, plots and images. Imports nothing of training or evaluation."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
