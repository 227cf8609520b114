"""One small finished run, trained once for all tests of a process that look at runs."""

import json
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


def use_slow_decomposition(run_dir: Path) -> Path:
    """Change a run so that its components are never exactly zero, because zeros would all be ties; returns it."""
    config = json.loads((run_dir / "config.json").read_text())
    config["method"]["static_dynamic"] |= {"method": "slow", "radius": 0.3}
    (run_dir / "config.json").write_text(json.dumps(config))
    return run_dir


@cache
def _temp_dir() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stillmotion-tests-")
