"""The errors a user can cause, which the command line prints as one line, and the wish to stop."""


class StillmotionError(Exception):
    """Something the caller can mend. The message names the value, the limit and the remedy."""


class VideoError(StillmotionError):
    """A video that cannot be read; whatever the container or codec did wrong ends up as this one type."""


class NonFiniteError(StillmotionError):
    """A NaN or an infinity in a tensor; the training loop adds the step and the last good checkpoint."""


class Interrupted(Exception):
    """A signal asked the run to stop; it saved itself and can be resumed."""
