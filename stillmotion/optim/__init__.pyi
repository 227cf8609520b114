from stillmotion.optim.bilevel import SolverConfig as SolverConfig
from stillmotion.optim.bilevel import hypergradient as hypergradient
from stillmotion.optim.lars import LARS as LARS
from stillmotion.optim.optimizers import OptimConfig as OptimConfig
from stillmotion.optim.optimizers import build_optimizer as build_optimizer
