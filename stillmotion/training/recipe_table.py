"""What the optimisers of several recipes have in common."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from stillmotion.errors import StillmotionError
from stillmotion.optim.optimizers import OptimConfig
from stillmotion.training.config import RunConfig
from stillmotion.utils.registry import did_you_mean

SGD_DEFAULTS = OptimConfig(name="sgd", lr_batch_size=64, weight_decay=1e-4, batch_size=64, warmup_epochs=0.0)
# Its rate is taken as it is, whatever the batch.
ADAMW_DEFAULTS = OptimConfig(name="adamw", lr_batch_size=0, weight_decay=0.05, warmup_epochs=1)
# For small networks on a CPU.
ADAMW_SMALL_MODEL = replace(ADAMW_DEFAULTS, batch_size=16, max_grad_norm=1.0)
ConfigT = TypeVar("ConfigT", bound=RunConfig)


@dataclass(frozen=True)
class Recipe(Generic[ConfigT]):
    """A row: what builds the configuration, what it is in a line, and the paper's table that it is a row of."""

    build: Callable[[], ConfigT]
    description: str
    citation: str = ""

    def debug_variant(self, name: str, shrink_fn: Callable[[ConfigT], ConfigT]) -> "Recipe[ConfigT]":
        """The debug twin of this row, which has that name."""
        return Recipe(partial(_build_and_shrink, self.build, shrink_fn), f"debug twin of {name}")


@dataclass(frozen=True)
class RecipeTable(Generic[ConfigT]):
    """All recipes of a verb, by name."""

    verb: str
    recipes: Mapping[str, Recipe[ConfigT]]

    def get(self, name: str) -> ConfigT:
        """The configuration with this name."""
        if name not in self.recipes:
            hint = did_you_mean(name, self.recipes, fallback=f"`stillmotion {self.verb} --list-recipes` names all")
            raise StillmotionError(f"{self.verb} has no recipe {name!r}{hint}")
        return replace(self.recipes[name].build(), recipe=name)

    def names(self) -> tuple[str, ...]:
        """All names that `get` takes."""
        return tuple(self.recipes)

    def format_list(self) -> list[str]:
        """What `--list-recipes` prints: each name, what it is, and its table in brackets."""
        column = max(map(len, self.recipes))
        return [
            f"{name:{column}}  {row.description}" + (f" ({row.citation})" if row.citation else "")
            for name, row in self.recipes.items()
        ]


def cite_tables(paper: str, *tables: int) -> str:
    """A source, such as "BOD-VCL, Tables 3 and 5"; nothing where no table is given."""
    if len(tables) < 2:
        return "".join(f"{paper}, Table {table}" for table in tables)
    return f"{paper}, Tables {', '.join(map(str, tables[:-1]))} and {tables[-1]}"


def _build_and_shrink(build: Callable[[], ConfigT], shrink: Callable[[ConfigT], ConfigT]) -> ConfigT:
    return shrink(build())
