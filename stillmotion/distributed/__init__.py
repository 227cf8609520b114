"""Several processes: torchrun's environment, process groups and collectives.

Names are imported when they are first used, so that `stillmotion.distributed.torchrun` can be imported without torch.
"""

from importlib import import_module
from typing import Any

_MODULES = ("process_group", "collectives")


def __getattr__(name: str) -> Any:
    for module in _MODULES:
        found = vars(import_module(f"stillmotion.distributed.{module}")).get(name)
        if found is not None:
            return found
    raise AttributeError(f"module 'stillmotion.distributed' has no attribute {name!r}")
