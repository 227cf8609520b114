"""`--dry-run`: what a long verb would do and take, in place of doing it.

A plan has its verb's signature, and is given the very arguments that the verb would be called with. It writes nothing:
what must be made to be timed is made in a temporary folder.
"""

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from stillmotion.amounts import lines
from stillmotion.parent import first_rank

DRY_RUN = "--dry-run"
# Long verbs by the functions that plan them, which are imported when they are asked for.
PLANS = {
    "pretrain": "plans_train:pretrain",
    "transfer": "plans_train:transfer",
    "finetune": "plans_train:finetune",
    "detect": "plans_train:detect",
    "segment": "plans_train:segment",
    "probe": "plans:probe",
    "retrieve": "plans:retrieve",
    "clusters": "plans:clusters",
    "order": "plans:order",
    "index": "plans:index",
    "embed": "plans:embed",
    "controlled make": "plans_copies:controlled_make",
    "controlled evaluate": "plans:controlled_evaluate",
    "prepare": "plans_copies:prepare",
}


def processes() -> int:
    """How many `torchrun` started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def plan(verb: str, work: Callable[[], Any]) -> None:
    """Print what the work of a verb would be, once for all processes that `torchrun` starts."""
    if not first_rank():
        return
    assert isinstance(work, functools.partial)
    module, _, name = PLANS[verb].partition(":")
    rows = getattr(importlib.import_module(f"stillmotion.cli.{module}"), name)
    asked = inspect.signature(work.func).bind(*work.args, **work.keywords)
    asked.apply_defaults()
    told = lines(rows(**asked.arguments))
    print("\n".join([f"stillmotion {verb} would take this; figures are estimates, and nothing is written", *told]))
