"""Recording of the progress that library code reports."""

import contextlib
from collections.abc import Callable, Iterator

from stillmotion.utils import progress


@contextlib.contextmanager
def progress_to(report: Callable[[int, int], object]) -> Iterator[None]:
    """Call a function with (done, total) for every call of `report_progress` inside."""
    progress._reporters.append(report)  # type: ignore[arg-type]
    try:
        yield
    finally:
        progress._reporters.pop()


@contextlib.contextmanager
def record_progress() -> Iterator[list[tuple[int, int]]]:
    """Collect (done, total) of every call of `report_progress` inside."""
    calls: list[tuple[int, int]] = []
    with progress_to(lambda done, total: calls.append((done, total))):
        yield calls
