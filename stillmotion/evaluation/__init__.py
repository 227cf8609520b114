"""Evaluation protocols of frozen encoders: one package for each, and their metrics."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
