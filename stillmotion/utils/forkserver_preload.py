"""What the fork server of workers imports first, and only there: from then on it ends at once when its parent does.

By itself it would end after the last worker, and take down all that it has imported, for seconds on a busy machine.
"""

import contextlib
import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1

if sys.platform == "linux":
    with contextlib.suppress(OSError, AttributeError):  # a C library without it: the server ends by itself, later
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
