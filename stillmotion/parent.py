"""A process that does not outlive the one that started it."""

import os
import signal
import threading
import time

_EVERY, _GRACE = 0.2, 2.0  # seconds between two looks, and between the wish to stop and the end
_watched = False


def end_with_parent() -> None:
    """From now on, end when the parent does, killed or not: first by SIGTERM, so that a run saves itself, then at once.

    For the ranks that `torchrun` starts, which a killed agent leaves behind.
    """
    global _watched
    if not _watched:
        _watched = True
        threading.Thread(target=_watch, args=(os.getppid(),), name="parent", daemon=True).start()


def is_rank() -> bool:
    """Whether `torchrun`, or something like it, started this process."""
    return "LOCAL_RANK" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def first_rank() -> bool:
    """Whether this process speaks for all that `torchrun` started, which may not have met yet."""
    return os.environ.get("RANK", "0") == "0"


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_EVERY)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE)
    os._exit(128 + signal.SIGTERM)
