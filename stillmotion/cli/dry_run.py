"""`--dry-run`: what a long verb would do and take, in place of doing it.

A plan has its verb's signature, and is given the very arguments that the verb would be called with. It writes nothing:
what must be made to be timed is made in a temporary folder."""

import functools
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from stillmotion.distributed.torchrun import is_main_process
from stillmotion.utils.formatting import format_rows

DRY_RUN = "--dry-run"
# Long verbs by the functions that plan them, which are imported when they are asked for.
DRY_RUNS = {
    "pretrain": "dry_run_training:pretrain",
    "transfer": "dry_run_training:transfer",
    "finetune": "dry_run_training:finetune",
    "detect": "dry_run_training:detect",
    "segment": "dry_run_training:segment",
    "probe": "dry_run_evaluation:probe",
    "retrieve": "dry_run_evaluation:retrieve",
    "cluster": "dry_run_evaluation:cluster",
    "order": "dry_run_evaluation:order",
    "index": "dry_run_evaluation:index",
    "embed": "dry_run_evaluation:embed",
    "static-dynamic make": "dry_run_transcode:static_dynamic_make",
    "static-dynamic evaluate": "dry_run_evaluation:static_dynamic_evaluate",
    "prepare": "dry_run_transcode:prepare",
}


def print_estimate(verb: str, work: Callable[[], Any]) -> None:
    """Print what the work of a verb would be, once for all processes that `torchrun` starts."""
    if not is_main_process():
        return
    assert isinstance(work, functools.partial)
    module, _, name = DRY_RUNS[verb].partition(":")
    rows = getattr(importlib.import_module(f"stillmotion.cli.main.{module}"), name)
    asked = inspect.signature(work.func).bind(*work.args, **work.keywords)
    asked.apply_defaults()
    told = format_rows(rows(**asked.arguments))
    print("\n".join([f"stillmotion {verb} would take this; figures are estimates, and nothing is written", *told]))
