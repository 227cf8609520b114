"""Optimizers, learning-rate schedules and bi-level solvers."""

from stillmotion.utils.lazy_exports import lazy_exports

__getattr__, __all__ = lazy_exports(__name__, __file__)
