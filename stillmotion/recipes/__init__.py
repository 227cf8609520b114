"""Complete configurations by name: one for each row of the papers' tables, each with a debug twin.

`k400-bod-byol-rho4` is a row at the paper's scale; `debug-bod-byol-rho4` is the same composition on synthetic videos
with a small network, in under a minute on a CPU; `ucf101-vididi-vic-r3d_18` and `debug-vididi-vic-r3d_18` likewise.
`laptop` is for a folder of your own videos. The other training verbs have recipes of their own: `RECIPES`, by verb.
"""

from functools import partial
from typing import Any

from stillmotion.config import Config
from stillmotion.recipes.bod_vcl import BASELINES, BOD_VCL
from stillmotion.recipes.detect import DETECT
from stillmotion.recipes.finetune import FINETUNE
from stillmotion.recipes.segment import SEGMENT
from stillmotion.recipes.small import DEMO_VIDEOS, TOKENS, debug, debug_tokens, demo, laptop, ours
from stillmotion.recipes.table import Recipe, Recipes
from stillmotion.recipes.transfer import TRANSFER
from stillmotion.recipes.vididi import VIDIDI, VIDIDI_DEBUG, VIDIDI_DEMO

PRETRAIN: Recipes[Config] = Recipes(
    "pretrain",
    {
        "laptop": Recipe(laptop, "V-SimCLR + BOD-VCL for a folder of your own videos, two cores"),
        **{
            f"demo-{prefix}{name}": Recipe(partial(demo, name, split=bool(prefix)), f"{b.title}{added}{DEMO_VIDEOS}")
            for prefix, added in (("", ""), ("bod-", " + BOD-VCL"))
            for name, b in BASELINES.items()
        },
        **VIDIDI_DEMO,
        "demo-ours": Recipe(ours, f"Routed halves{DEMO_VIDEOS}"),
        **TOKENS,
        **{f"debug-{name}": row.twin(name, debug_tokens) for name, row in TOKENS.items()},
        **BOD_VCL,
        **{name.replace("k400-", "debug-"): row.twin(name, debug) for name, row in BOD_VCL.items()},
        **VIDIDI,
        **VIDIDI_DEBUG,
    },
)
RECIPES: dict[str, Recipes[Any]] = {
    recipes.verb: recipes for recipes in (PRETRAIN, TRANSFER, FINETUNE, DETECT, SEGMENT)
}


def recipe_names() -> tuple[str, ...]:
    """All names that `recipe` takes."""
    return PRETRAIN.names()


def recipe(name: str) -> Config:
    """The pre-training configuration with this name."""
    return PRETRAIN.named(name)
