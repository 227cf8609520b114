"""Exit codes of the command line: errors become one line on stderr and one of these codes.

2     what a user can mend: an option, a file, a full disk, a device that is not there, too little memory
130   stopped by Ctrl-C, 143 by SIGTERM; a run has saved itself, and the same command resumes it
1     whoever read the output, such as `head`, has seen enough; or `data check` found something missing
70    a fault of stillmotion's own
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
    """Let what ends the work within end the process as the table above says; debug: errors are raised as they are."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no text at all
    with contextlib.suppress(ValueError):  # outside the main thread signals are somebody else's
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
    """What a user is told who can mend it; None where it is a fault of ours."""
    if isinstance(error, StillmotionError):
        return str(error)
    said = str(error).strip().partition("\n")[0]
    if isinstance(error, MemoryError) or any(word in str(error) for word in _OUT_OF_MEMORY_TEXTS):
        return f"out of memory ({said or 'no more to be had'}); lower the batch, the frames or the size"
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or said}"
    return None


def _bug_report_message(error: Exception) -> str:
    said = str(error).strip().partition("\n")[0]
    return (
        f"{type(error).__name__}: {said}. This is a fault of stillmotion's: --traceback shows where, please report it"
    )


def _print_once(message: str) -> None:
    if is_first_to_report(message):
        print(f"stillmotion: {message}", file=sys.stderr)


def _raise_on_sigterm(number: int, frame: FrameType | None) -> None:
    raise Interrupted("stopped", 143)
