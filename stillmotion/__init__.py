"""Self-supervised video representations with separate static and dynamic components.

Example:
    encoder = stillmotion.load("runs/mine")
    whole, static, dynamic, motion = encoder.embed(["a.mp4", "b.mp4"])
"""

from stillmotion.utils.lazy_exports import lazy_exports

__version__ = "0.1.0"
__getattr__, _lazy_names = lazy_exports(__name__, __file__)
__all__ = ["__version__", *_lazy_names]
