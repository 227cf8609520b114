"""Progress of long work: a bar on the terminal, and an estimate of the time that is left."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stillmotion.distributed.torchrun import is_main_process
from stillmotion.utils.formatting import format_count, format_duration

logger = logging.getLogger(__name__)

_MIN_TIMED_SECONDS = 5.0  # seconds of work from which the rest is estimated


class RemainingTime:
    """Log once, after the first videos, how long the others will take, estimated from the sizes of their files.

    Args:
        sizes: Bytes of each video of this process.
        num_ranks: Number of processes with as many videos each.

    Attributes:
        num_videos_done: Videos of this process that are done.
    """

    def __init__(self, sizes: Sequence[int], *, num_ranks: int = 1) -> None:
        self.num_videos_done, self._num_ranks = 0, num_ranks
        self._num_videos, self._remaining_bytes, self._timed_bytes = len(sizes), sum(sizes), 0
        self._is_reported, self._start = False, 0.0

    def update(self, size: int) -> None:
        """Count a video of this size, in bytes, as done."""
        self.num_videos_done += 1
        self._remaining_bytes -= size
        if self.num_videos_done == 1:  # its time includes the loading of everything
            self._start = time.monotonic()
            return
        self._timed_bytes += size
        seconds = time.monotonic() - self._start
        videos_left = self._num_videos - self.num_videos_done
        if not self._is_reported and seconds > _MIN_TIMED_SECONDS and self._timed_bytes and videos_left:
            self._is_reported = True
            if is_main_process():
                duration = format_duration(seconds / self._timed_bytes * self._remaining_bytes)
                logger.info("about %s for %s", duration, format_count(videos_left * self._num_ranks, "more video"))


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
        task = progress.add_task(description, total=None)  # not known before the first report

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
