"""The errors a user can cause, which the command line prints as one line, and the wish to stop."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StillmotionError(Exception):
    """Something the caller can mend. The message names the value, the limit and the remedy."""


class VideoError(StillmotionError):
    """A video that cannot be read; whatever the container or codec did wrong ends up as this one type."""


class NonFiniteError(StillmotionError):
    """A NaN or an infinity in a tensor; the training loop adds the step and the last good checkpoint."""


class Interrupted(Exception):
    """A signal asked the run to stop; it saved itself and can be resumed."""


@contextmanager
def writing(place: str | Path, *, option: str = "--out") -> Iterator[None]:
    """What the system has against writing there is told in one line; option: what names another place."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise StillmotionError(f"cannot write to {place}: {reason}; choose another {option}") from None


def made(folder: str | Path, *, option: str = "--out") -> Path:
    """The folder, which is made where it is missing; option: as in `writing`."""
    place = Path(folder)
    with writing(place, option=option):
        place.mkdir(parents=True, exist_ok=True)
    return place
