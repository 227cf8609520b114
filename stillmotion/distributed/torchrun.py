"""The environment of `torchrun`: rank and world size before a process group exists, and ending with the parent."""

import os
import signal
import threading
import time
from datetime import timedelta

from stillmotion.utils.hashing import hash_bytes

_POLL_SECONDS, _GRACE_SECONDS = 0.2, 2.0  # between two checks of the parent; between SIGTERM and the forced exit
_is_watching = False


def exit_with_parent() -> None:
    """From now on, end when the parent process does: by SIGTERM first, so that a run saves itself, then at once.

    For the ranks of `torchrun`, which a killed agent leaves behind.
    """
    global _is_watching
    if not _is_watching:
        _is_watching = True
        threading.Thread(target=_watch_parent, args=(os.getppid(),), name="parent", daemon=True).start()


def is_torchrun_worker() -> bool:
    """Whether `torchrun`, or a launcher like it, started this process."""
    return "LOCAL_RANK" in os.environ or "TORCHELASTIC_RUN_ID" in os.environ


def is_main_process() -> bool:
    """Whether this process has rank 0 in the environment; the process group need not exist yet."""
    return os.environ.get("RANK", "0") == "0"


def is_multi_process() -> bool:
    """Whether a launcher started this process as one of several."""
    return torchrun_world_size() > 1


def torchrun_world_size() -> int:
    """Number of processes that the launcher started; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_world_size() -> int:
    """Number of processes that the launcher started on this machine; 1 without a launcher."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_first_to_report(message: str) -> bool:
    """Whether no other rank has reported this message; True if there is no agent to ask.

    Args:
        message: Text of an error that several ranks may meet.
    """
    if not is_multi_process() or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    try:
        from torch.distributed import TCPStore
    except (ImportError, AttributeError, SystemError):  # a signal has ended the first import of torch
        return True
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"stillmotion/{attempt}/{hash_bytes(message.encode(errors='replace'), digest_size=8)}"
    try:
        return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=5)).add(key, 1) == 1
    except (RuntimeError, OSError):  # the agent has ended
        return True


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(128 + signal.SIGTERM)
