"""Complete configurations by name: one for each row of the papers' tables, each with a debug twin.

`k400-bod-byol-rho4` is a row at the paper's scale; `debug-bod-byol-rho4` is the same composition on synthetic videos
with a small network, in under a minute on a CPU; `ucf101-vididi-vic-r3d_18` and `debug-vididi-vic-r3d_18` likewise.
`laptop` is for a folder of your own videos.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from stillmotion.config import Config
from stillmotion.recipes.bod_vcl import BOD_VCL, OBJECTIVES
from stillmotion.recipes.choose import chosen
from stillmotion.recipes.small import debug, demo, laptop
from stillmotion.recipes.vididi import VIDIDI, VIDIDI_DEBUG, VIDIDI_DEMO

_RECIPES: dict[str, Callable[[], Config]] = {
    "laptop": laptop,
    **{f"demo-{m}": partial(demo, m, split=False) for m in OBJECTIVES},
    **{f"demo-bod-{m}": partial(demo, m, split=True) for m in OBJECTIVES},
    **VIDIDI_DEMO,
    **BOD_VCL,
    **{
        name.replace("k400-", "debug-"): (lambda build=build: debug(build()))  # type: ignore[misc]
        for name, build in BOD_VCL.items()
    },
    **VIDIDI,
    **VIDIDI_DEBUG,
}


def recipe_names() -> tuple[str, ...]:
    """All names that `recipe` takes."""
    return tuple(_RECIPES)


def recipe(name: str) -> Config:
    """The configuration with this name."""
    return replace(chosen(_RECIPES, name, verb="pretrain")(), recipe=name)
