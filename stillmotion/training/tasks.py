"""Table of the training verbs: the configuration, recipes, functions, page and encoder loader of each.

Cells are "module:name" within `stillmotion.training` and are imported when they are first used, so that this table
can be read without torch. A new training verb is a folder with these modules, and a row here.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stillmotion.errors import StillmotionError
from stillmotion.utils.files import read_json
from stillmotion.utils.registry import import_object

if TYPE_CHECKING:
    from stillmotion.training.config import RunConfig
    from stillmotion.training.recipe_table import RecipeTable

CONFIG_FILE = "config.json"


class Task(NamedTuple):
    """A training verb.

    Attributes:
        config: Class of its configuration, a `RunConfig`.
        recipes: Its `RecipeTable`.
        run: Function `run(config, run_dir, ...)` that trains and returns the run directory.
        plan: Function that estimates the cost of a run, for `--dry-run`.
        page: Function that writes `report.html` of a run directory.
        encoder: Function that loads the `Encoder` of a run directory from an `EncoderSpec`.
        has_live_page: Whether `page` can show a run that is not finished.
    """

    config: str
    recipes: str
    run: str
    plan: str
    page: str
    encoder: str
    has_live_page: bool = False

    def load(self, cell: str) -> Any:
        """Import the object that a cell names."""
        return import_object(f"stillmotion.training.{getattr(self, cell)}")


def _folder_task(verb: str, *, has_live_page: bool = False) -> Task:
    """Return the row of a verb with a folder of its own, in which every name follows from the verb."""
    return Task(
        config=f"{verb}.config:{verb.capitalize()}Config",
        recipes=f"{verb}.recipes:{verb.upper()}_RECIPES",
        run=f"{verb}.task:{verb}",
        plan=f"{verb}.task:plan_{verb}",
        page=f"{verb}.report:write_{verb}_page",
        encoder=f"{verb}.encoder:load_encoder",
        has_live_page=has_live_page,
    )


TASKS = {
    "pretrain": _folder_task("pretrain", has_live_page=True),
    "transfer": _folder_task("transfer", has_live_page=True),
    "finetune": _folder_task("finetune"),
    "detect": _folder_task("detect"),
    "segment": _folder_task("segment"),
}


def config_class(verb: str) -> "type[RunConfig]":
    """Return the configuration class of a training verb."""
    kind: type[RunConfig] = TASKS[verb].load("config")
    return kind


def load_run_config(verb: str, run_dir: str | Path) -> Any:
    """Read the configuration of a run.

    Args:
        verb: The training verb that wrote it.
        run_dir: Run directory.
    """
    return import_object("stillmotion.training.run_dir:load_config")(run_dir, config_class(verb))


def recipe_table(verb: str) -> "RecipeTable[Any]":
    """Return the recipes of a training verb."""
    table: RecipeTable[Any] = TASKS[verb].load("recipes")
    return table


def get_recipe(name: str, *, verb: str = "pretrain", debug: bool = False) -> Any:
    """Return the configuration of a recipe.

    Args:
        name: Name of the recipe.
        verb: The training verb that it is a recipe of.
        debug: Shrink it to synthetic videos and a small network, as `--debug` does.
    """
    return recipe_table(verb).get(name, debug=debug)


def list_recipes(verb: str = "pretrain") -> tuple[str, ...]:
    """Return the names of a training verb's recipes."""
    return recipe_table(verb).names()


def verb_of_run(run_dir: str | Path) -> str | None:
    """Return the training verb that wrote a run directory; None if it is no run directory."""
    try:
        return verb_of_config(read_json(Path(run_dir) / CONFIG_FILE))
    except (OSError, StillmotionError):
        return None


def verb_of_config(data: Any) -> str | None:
    """Return the training verb of the contents of a config.json; None if they are not of one."""
    verb = data.get("verb") if isinstance(data, dict) else None
    return verb if isinstance(verb, str) and verb in TASKS else None
