from stillmotion.training.run_dir import load_any_config as load_any_config
from stillmotion.training.run_dir import load_config as load_config
from stillmotion.training.run_dir import load_results as load_results
from stillmotion.training.run_log import load_metrics as load_metrics
from stillmotion.training.tasks import TASKS as TASKS
from stillmotion.training.tasks import get_recipe as get_recipe
from stillmotion.training.tasks import list_recipes as list_recipes
from stillmotion.training.trainer import Trainer as Trainer
