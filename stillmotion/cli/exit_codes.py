"""Exit codes of the command line: errors become one line on stderr and one of these codes.

2     what a user can correct: an option, a file, a full disk, a device that is not there, too little memory
130   stopped by Ctrl-C, 143 by SIGTERM; a run has saved itself, and the same command resumes it
1     the reader of the output, such as `head`, has closed it; or `data check` finds that something is missing
70    a bug in stillmotion
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

from stillmotion.distributed.torchrun import is_first_to_report
from stillmotion.errors import Interrupted, StillmotionError

_OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "Cannot allocate memory",
    "bad_alloc",
    "Storage size calculation overflowed",
)


@contextlib.contextmanager
def exit_on_error(*, show_traceback: bool = False) -> Iterator[None]:
    """End the process with one line and one of the exit codes above where an error leaves the block.

    Args:
        show_traceback: Raise the error with its traceback instead.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # file names need not be valid text
    with contextlib.suppress(ValueError):  # only the main thread can handle signals
        signal.signal(signal.SIGTERM, _raise_on_sigterm)
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except KeyboardInterrupt as stop:
        if show_traceback:
            raise
        _print_once(str(stop) or "stopped")
        raise SystemExit(getattr(stop, "exit_code", 130)) from None
    except Exception as error:
        if show_traceback:
            raise
        words = _user_message(error)
        _print_once(words or _bug_report_message(error))
        raise SystemExit(2 if words else 70) from None


def _user_message(error: Exception) -> str | None:
    """Message for an error that a user can correct; None for a bug."""
    if isinstance(error, StillmotionError):
        return str(error)
    reason = str(error).strip().partition("\n")[0]
    if isinstance(error, MemoryError) or any(word in str(error) for word in _OUT_OF_MEMORY_TEXTS):
        return (
            f"out of memory ({reason or 'allocation failed'}); lower the batch size, the number of frames or their size"
        )
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or reason}"
    return None


def _bug_report_message(error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0]
    return (
        f"{type(error).__name__}: {reason}. This is a bug in stillmotion: add --traceback to see where, and please "
        "report it"
    )


def _print_once(message: str) -> None:
    if is_first_to_report(message):
        print(f"stillmotion: {message}", file=sys.stderr)


def _raise_on_sigterm(number: int, frame: FrameType | None) -> None:
    raise Interrupted("stopped", 143)
