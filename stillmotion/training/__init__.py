"""Training: the trainer, run directories, recipes, and one folder for each training verb."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
