"""Several processes: the environment of torchrun, the process group, and collectives of tensors."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.distributed.collectives import all_gather as all_gather
    from stillmotion.distributed.collectives import all_reduce_mean_ as all_reduce_mean_
    from stillmotion.distributed.collectives import broadcast_ as broadcast_
    from stillmotion.distributed.process_group import barrier as barrier
    from stillmotion.distributed.process_group import get_rank as get_rank
    from stillmotion.distributed.process_group import get_world_size as get_world_size
    from stillmotion.distributed.process_group import init_process_group as init_process_group
    from stillmotion.distributed.process_group import run_on_all as run_on_all
    from stillmotion.distributed.process_group import run_on_main as run_on_main

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "collectives": ("all_gather", "all_reduce_mean_", "broadcast_"),
        "process_group": (
            "barrier",
            "get_rank",
            "get_world_size",
            "init_process_group",
            "run_on_all",
            "run_on_main",
        ),
    },
)
