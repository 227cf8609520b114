"""Complete configurations by name: one for each row of the papers' tables, each with a debug twin.

`k400-bod-byol-rho4` is a row at the paper's scale; `debug-bod-byol-rho4` is the same composition on synthetic videos
with a small network, in under a minute on a CPU; `ucf101-vididi-vic-r3d_18` and `debug-vididi-vic-r3d_18` likewise.
`laptop` is for a folder of your own videos. The other training verbs have recipes of their own: `RECIPES`, by verb."""

from typing import Any

from stillmotion.training.config import RunConfig
from stillmotion.training.detect.config import DetectConfig
from stillmotion.training.detect.recipes import DETECT_RECIPES
from stillmotion.training.finetune.config import FinetuneConfig
from stillmotion.training.finetune.recipes import FINETUNE_RECIPES
from stillmotion.training.pretrain.config import PretrainConfig
from stillmotion.training.pretrain.recipes import PRETRAIN_RECIPES
from stillmotion.training.recipe_table import RecipeTable
from stillmotion.training.segment.config import SegmentConfig
from stillmotion.training.segment.recipes import SEGMENT_RECIPES
from stillmotion.training.transfer.config import TransferConfig
from stillmotion.training.transfer.recipes import TRANSFER_RECIPES

RUN_CONFIGS: dict[str, type[RunConfig]] = {
    kind.verb: kind for kind in (PretrainConfig, TransferConfig, FinetuneConfig, DetectConfig, SegmentConfig)
}
RECIPES: dict[str, RecipeTable[Any]] = {
    recipes.verb: recipes
    for recipes in (PRETRAIN_RECIPES, TRANSFER_RECIPES, FINETUNE_RECIPES, DETECT_RECIPES, SEGMENT_RECIPES)
}


def list_recipes() -> tuple[str, ...]:
    """All names that `recipe` takes."""
    return PRETRAIN_RECIPES.names()


def get_recipe(name: str) -> PretrainConfig:
    """The pre-training configuration with this name."""
    return PRETRAIN_RECIPES.get(name)
