"""What processes that `torchrun` started say to each other while they copy videos.

As in `distributed`, which a process by itself need not import: torch takes seconds, which a small set is copied in.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar

from stillmotion.distributed.torchrun import is_torchrun_worker

Result = TypeVar("Result")


def get_rank() -> int:
    """This process's number, 0 when alone."""
    return _process_group().get_rank() if is_torchrun_worker() else 0


def get_world_size() -> int:
    """How many processes copy together."""
    return _process_group().get_world_size() if is_torchrun_worker() else 1


def run_on_main(fn: Callable[[], Result]) -> Result:
    """What `fn` returns on the first rank, told to all; what a user can mend there is raised on every rank."""
    return _process_group().run_on_main(fn) if is_torchrun_worker() else fn()


def run_on_all(fn: Callable[[], Result]) -> Result:
    """What `fn` returns on this rank, once it has gone well on all of them."""
    return _process_group().run_on_all(fn) if is_torchrun_worker() else fn()


def shard_for_rank(jobs: Sequence[Result]) -> Sequence[Result]:
    """This rank's jobs: of each `world` consecutive ones, one."""
    return jobs[get_rank() :: get_world_size()]


def _process_group() -> ModuleType:
    from stillmotion.distributed import process_group

    return process_group
