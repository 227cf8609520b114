"""Training: the trainer, run directories, recipes, and one folder for each training verb."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.training.run_dir import load_any_config as load_any_config
    from stillmotion.training.run_dir import load_config as load_config
    from stillmotion.training.run_dir import load_results as load_results
    from stillmotion.training.run_log import load_metrics as load_metrics
    from stillmotion.training.tasks import TASKS as TASKS
    from stillmotion.training.tasks import get_recipe as get_recipe
    from stillmotion.training.tasks import list_recipes as list_recipes
    from stillmotion.training.trainer import Trainer as Trainer

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "run_dir": ("load_any_config", "load_config", "load_results"),
        "run_log": ("load_metrics",),
        "tasks": ("TASKS", "get_recipe", "list_recipes"),
        "trainer": ("Trainer",),
    },
)
