"""Exceptions that a user can cause and fix."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

logger = logging.getLogger(__name__)


class StillmotionError(Exception):
    """Error that the user can fix. The message names the value, the limit and the remedy.

    The command line prints it as one line, without a traceback.
    """


class VideoError(StillmotionError):
    """A video that cannot be read, whatever the container or codec did wrong."""


class NonFiniteError(StillmotionError):
    """NaN, infinity or divergence during training."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped the work; a training run has saved itself and can be resumed.

    Args:
        message: Line to print.
        exit_code: Exit code of the process: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str = "stopped", exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def as_video_error(name: object) -> Iterator[None]:
    """Turn whatever goes wrong with one video into `VideoError`, so that one video never stops the others.

    Every loop over videos reads each of them in this context. Errors of the configuration and interruptions pass.

    Args:
        name: Name of the video, for the message.

    Raises:
        VideoError: In place of any exception that is not a `StillmotionError`; that exception is its cause.
    """
    try:
        yield
    except StillmotionError:
        raise
    except Exception as error:
        logger.debug("%s failed", name, exc_info=True)
        reason = "not enough memory" if isinstance(error, MemoryError) else str(error).strip().partition("\n")[0]
        raise VideoError(f"{name}: {reason or type(error).__name__}") from error


def raise_if_none_readable(
    failed: Mapping[str, str] | Iterable[tuple[str, str]], total: int, what: str = "videos"
) -> None:
    """Raise an error if all of the items failed.

    Args:
        failed: Name and reason of each item that could not be read.
        total: Number of items.
        what: Plural noun of the items.

    Raises:
        VideoError: There are as many failures as items.
    """
    failures = list(failed.items() if isinstance(failed, Mapping) else failed)
    if len(failures) < total:
        return
    first = ""
    if failures:
        name, reason = failures[0]
        first = f" First error: {reason}" if name in reason else f" First error, {name}: {reason}"
    if total == 1:
        raise VideoError(f"The only {what.removesuffix('s')} could not be read.{first}")
    raise VideoError(f"None of the {total} {what} could be read.{first}")
