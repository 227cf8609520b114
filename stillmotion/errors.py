"""The two errors a user can cause; the command line prints either as one line and exits with 2."""


class StillmotionError(Exception):
    """Something the caller can mend. The message names the value, the limit and the remedy."""


class VideoError(StillmotionError):
    """A video that cannot be read; whatever the container or codec did wrong ends up as this one type."""


class NonFiniteError(StillmotionError):
    """A NaN or an infinity in a tensor; the training loop adds the step and the last good checkpoint."""
