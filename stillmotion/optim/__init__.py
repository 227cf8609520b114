"""Optimizers, learning-rate schedules and bi-level solvers."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.optim.bilevel import SolverConfig as SolverConfig
    from stillmotion.optim.bilevel import hypergradient as hypergradient
    from stillmotion.optim.lars import LARS as LARS
    from stillmotion.optim.optimizers import OptimConfig as OptimConfig
    from stillmotion.optim.optimizers import build_optimizer as build_optimizer

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "bilevel": ("SolverConfig", "hypergradient"),
        "lars": ("LARS",),
        "optimizers": ("OptimConfig", "build_optimizer"),
    },
)
