"""Import side effect: the fork server of workers is killed when its parent ends. Import it nowhere else.

Otherwise the server would end after the last worker, and take seconds for it on a busy machine.
"""

import contextlib
import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1

if sys.platform == "linux":
    with contextlib.suppress(OSError, AttributeError):  # C library without prctl: the server ends later
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
