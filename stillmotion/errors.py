"""Exceptions that a user can cause and fix."""

from collections.abc import Iterable, Mapping


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
