"""What processes that `torchrun` started say to each other while they copy videos.

As in `distributed`, which a process by itself need not import: torch takes seconds, which a small set is copied in.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar

from stillmotion.parent import is_rank

Result = TypeVar("Result")


def rank() -> int:
    """This process's number, 0 when alone."""
    return _group().rank() if is_rank() else 0


def world() -> int:
    """How many processes copy together."""
    return _group().world() if is_rank() else 1


def on_first(work: Callable[[], Result]) -> Result:
    """What `work` returns on the first rank, told to all; what a user can mend there is raised on every rank."""
    return _group().on_first(work) if is_rank() else work()


def everywhere(work: Callable[[], Result]) -> Result:
    """What `work` returns on this rank, once it has gone well on all of them."""
    return _group().everywhere(work) if is_rank() else work()


def share(jobs: Sequence[Result]) -> Sequence[Result]:
    """This rank's jobs: of each `world` consecutive ones, one."""
    return jobs[rank() :: world()]


def _group() -> ModuleType:
    from stillmotion import distributed

    return distributed
