"""How worker processes of the data path are started."""

import multiprocessing
import signal
import sys
from typing import Any

import cv2


def process_context() -> Any:
    """The multiprocessing context to start workers in."""
    # Plain fork hangs once OpenCV or CUDA has run in the parent; a fork server is clean, and imports only once.
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    context.set_forkserver_preload(["stillmotion.data.loader"])
    return context


def start_worker(worker: int = 0) -> None:
    """What a worker does first: it leaves Ctrl-C to the parent, which ends it, and keeps to one core."""
    import torch  # seconds, which whoever starts no workers need not wait for

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
