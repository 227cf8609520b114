"""The errors a user can cause, which the command line prints as one line, and the wish to stop."""


class StillmotionError(Exception):
    """Something the caller can mend. The message names the value, the limit and the remedy."""


class VideoError(StillmotionError):
    """A video that cannot be read; whatever the container or codec did wrong ends up as this one type."""


class NonFiniteError(StillmotionError):
    """A NaN, an infinity or a number out of all bounds; the loop adds the step and the last good checkpoint."""


class Interrupted(KeyboardInterrupt):
    """A signal asked the work to stop; a run has saved itself and can be resumed.

    exit_code: what the process ends with, 130 for Ctrl-C and 143 for SIGTERM.
    """

    def __init__(self, message: str = "stopped", exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code
