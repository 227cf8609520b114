"""Objectives by name; the only place that lists them."""

from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.moco import MoCoConfig
from stillmotion.methods.objective import ObjectiveConfig
from stillmotion.methods.simclr import SimCLRConfig
from stillmotion.methods.swav import SwAVConfig
from stillmotion.methods.vicreg import VICRegConfig
from stillmotion.utils.registry import Registry

OBJECTIVES: Registry[type[ObjectiveConfig]] = Registry(
    "objective",
    "objectives",
    {kind.name: kind for kind in (SimCLRConfig, MoCoConfig, BYOLConfig, SwAVConfig, VICRegConfig)},
)
