"""One small finished run, trained once for all tests of a process that look at runs."""

import tempfile
from functools import cache
from pathlib import Path

import torch

from stillmotion.recipes import recipe
from stillmotion.tasks.pretrain import pretrain


@cache
def debug_run(name: str) -> Path:
    """A run folder of this recipe, kept until the process ends."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = Path(_kept().name) / name
    pretrain(recipe(name), folder)
    torch.set_num_threads(threads)
    return folder


@cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="stillmotion-tests-")
