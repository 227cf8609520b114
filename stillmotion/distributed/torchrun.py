"""What `torchrun` starts: processes that do not outlive it, and say what they have in common once."""

import hashlib
import os
import signal
import threading
import time
from datetime import timedelta

_POLL_SECONDS, _GRACE_SECONDS = 0.2, 2.0  # seconds between two looks, and between the wish to stop and the end
_is_watching = False


def exit_with_parent() -> None:
    """From now on, end when the parent does, killed or not: first by SIGTERM, so that a run saves itself, then at once.

    For the ranks that `torchrun` starts, which a killed agent leaves behind.
    """
    global _is_watching
    if not _is_watching:
        _is_watching = True
        threading.Thread(target=_watch_parent, args=(os.getppid(),), name="parent", daemon=True).start()


def is_torchrun_worker() -> bool:
    """Whether `torchrun`, or something like it, started this process."""
    return "LOCAL_RANK" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def is_main_process() -> bool:
    """Whether this process speaks for all that `torchrun` started, which may not have met yet."""
    return os.environ.get("RANK", "0") == "0"


def is_multi_process() -> bool:
    """Whether `torchrun`, or something like it, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def local_world_size() -> int:
    """How many processes like this one share its machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_first_to_report(message: str) -> bool:
    """Whether no other process that `torchrun` started has said this; where there is no agent to ask, so it is."""
    if not is_multi_process() or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    from torch.distributed import TCPStore

    place, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"stillmotion/{attempt}/{hashlib.blake2b(message.encode(errors='replace'), digest_size=8).hexdigest()}"
    try:
        return TCPStore(place, port, is_master=False, timeout=timedelta(seconds=5)).add(key, 1) == 1
    except (RuntimeError, OSError):  # it is gone
        return True


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(128 + signal.SIGTERM)


def torchrun_world_size() -> int:
    """How many `torchrun` started."""
    return int(os.environ.get("WORLD_SIZE", "1"))
