"""Recipes, tables of recipes, citations of papers, and optimizer defaults that recipes share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.config import RunConfig
from stillmotion.utils.registry import did_you_mean

SGD_DEFAULTS = OptimConfig(name="sgd", lr_batch_size=64, weight_decay=1e-4, batch_size=64, warmup_epochs=0.0)
# The learning rate is not scaled with the batch size.
ADAMW_DEFAULTS = OptimConfig(name="adamw", lr_batch_size=0, weight_decay=0.05, warmup_epochs=1)
# For small networks on a CPU.
ADAMW_SMALL_MODEL = replace(ADAMW_DEFAULTS, batch_size=16, max_grad_norm=1.0)
DEBUG_PREFIX = "debug:"
ConfigT = TypeVar("ConfigT", bound=RunConfig)


@dataclass(frozen=True)
class Recipe(Generic[ConfigT]):
    """A named configuration.

    Attributes:
        build: Builds the configuration.
        description: One line about it.
        citation: Paper and table that it reproduces.
    """

    build: Callable[[], ConfigT]
    description: str
    citation: str = ""


@dataclass(frozen=True)
class RecipeTable(Generic[ConfigT]):
    """All recipes of a training verb.

    Attributes:
        verb: The training verb.
        recipes: Recipes by name, the default first.
        make_debug_config: Shrinks a configuration to synthetic videos and a small network: seconds on a CPU.
    """

    verb: str
    recipes: Mapping[str, Recipe[ConfigT]]
    make_debug_config: Callable[[ConfigT], ConfigT]

    def get(self, name: str, *, debug: bool = False) -> ConfigT:
        """Return the configuration of a recipe.

        Args:
            name: Name of the recipe; "debug:NAME" is the same as `debug=True`.
            debug: Shrink it by `make_debug_config`.
        """
        debug = debug or name.startswith(DEBUG_PREFIX)
        name = name.removeprefix(DEBUG_PREFIX)
        if name not in self.recipes:
            hint = did_you_mean(name, self.recipes, fallback=f"`stillmotion {self.verb} --list-recipes` lists all")
            raise StillmotionError(f"{self.verb} has no recipe {name!r}{hint}")
        config = self.recipes[name].build()
        return (
            replace(self.make_debug_config(config), recipe=DEBUG_PREFIX + name)
            if debug
            else replace(config, recipe=name)
        )

    def __contains__(self, name: str) -> bool:
        return name.removeprefix(DEBUG_PREFIX) in self.recipes

    def names(self) -> tuple[str, ...]:
        """Return the names of all recipes."""
        return tuple(self.recipes)

    def format_list(self) -> list[str]:
        """Format the recipes for `--list-recipes`: name, description and, in brackets, the paper's table."""
        column_width = max(map(len, self.recipes))
        return [
            f"{name:{column_width}}  {row.description}" + (f" ({row.citation})" if row.citation else "")
            for name, row in self.recipes.items()
        ]


def cite_tables(paper: str, *tables: int) -> str:
    """Format a citation such as "BOD-VCL, Tables 3 and 5"; empty without tables.

    Args:
        paper: Short name of the paper.
        *tables: Numbers of its tables.
    """
    if len(tables) < 2:
        return "".join(f"{paper}, Table {table}" for table in tables)
    return f"{paper}, Tables {', '.join(map(str, tables[:-1]))} and {tables[-1]}"
