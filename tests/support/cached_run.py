"""One small finished run, trained once for all tests of a process that look at runs."""

import tempfile
from functools import cache
from pathlib import Path

import torch

from stillmotion.training.pretrain.task import pretrain
from stillmotion.training.tasks import get_recipe


@cache
def cached_run(recipe_name: str) -> Path:
    """A run folder of this recipe, kept until the process ends."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = Path(_temp_dir().name) / recipe_name.removeprefix("debug:")
    pretrain(get_recipe(recipe_name, debug=True), folder)
    torch.set_num_threads(threads)
    return folder


@cache
def _temp_dir() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stillmotion-tests-")
