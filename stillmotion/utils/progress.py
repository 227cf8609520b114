"""How moments get into the table: embedded some at a time, stored now and then, and never half a video as a whole."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stillmotion.distributed.torchrun import is_main_process
from stillmotion.utils.formatting import format_remaining_time

_MIN_TIMED_SECONDS = 5.0  # seconds of work that the rest is foretold from


class RemainingTime:
    """Says after the first videos how long all of them take, from the sizes of their files.

    sizes: bytes of each video. say: told once. ranks: that have as many videos each.
    """

    def __init__(self, sizes: Sequence[int], say: Callable[[str], object], *, ranks: int = 1) -> None:
        self.num_videos_done, self._ranks = 0, ranks
        self._num_videos, self._left, self._timed = len(sizes), sum(sizes), 0
        self._say, self._is_reported, self._start = say, False, 0.0

    def update(self, size: int) -> None:
        """A video of this size is done."""
        self.num_videos_done += 1
        self._left -= size
        if self.num_videos_done == 1:  # which had to wait for everything to be loaded
            self._start = time.monotonic()
            return
        self._timed += size
        taken = time.monotonic() - self._start
        if (
            not self._is_reported
            and taken > _MIN_TIMED_SECONDS
            and self._timed
            and self.num_videos_done < self._num_videos
        ):
            self._is_reported = True
            more = format_remaining_time(taken / self._timed * self._left)
            self._say(f"about {more} for {(self._num_videos - self.num_videos_done) * self._ranks} more videos")


_reporters: list[Callable[[int, int], None]] = []  # of the progress bars that are open, the innermost last


def report_progress(done: int, total: int) -> None:
    """Report progress to the innermost open `progress_bar`; does nothing where none is open.

    Args:
        done: Items that are done.
        total: Items in all.
    """
    if _reporters:
        _reporters[-1](done, total)


@contextlib.contextmanager
def progress_part(done_before: int, total: int) -> Iterator[None]:
    """Make what is reported inside part of a larger whole.

    Args:
        done_before: Items of the whole that were done before this part.
        total: Items of the whole.
    """
    outer = _reporters[-1] if _reporters else None
    with _reporting(lambda done, _: None if outer is None else outer(done_before + done, total)):
        yield


@contextlib.contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with rate and time left for what calls `report_progress` inside.

    It is shown on a terminal only, and on the first rank only.

    Args:
        description: What is being done, such as "embedding".
    """
    console = Console(stderr=True)
    columns = (TextColumn(description), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    visible = console.is_terminal and is_main_process()
    # What is printed meanwhile goes above the bar on a terminal, and else to where stdout leads.
    redirect = sys.stdout.isatty()
    with Progress(*columns, console=console, disable=not visible, transient=True, redirect_stdout=redirect) as progress:
        task = progress.add_task(description)

        def update(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        with _reporting(update):
            yield update


@contextlib.contextmanager
def _reporting(report: Callable[[int, int], None]) -> Iterator[None]:
    _reporters.append(report)
    try:
        yield
    finally:
        _reporters.pop()
