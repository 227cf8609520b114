"""What library code reports of its progress."""

import contextlib
from collections.abc import Iterator

from stillmotion.utils import progress


@contextlib.contextmanager
def record_progress() -> Iterator[list[tuple[int, int]]]:
    """Collect (done, total) of every call of `report_progress` inside."""
    reported: list[tuple[int, int]] = []
    progress._reporters.append(lambda done, total: reported.append((done, total)))
    try:
        yield reported
    finally:
        progress._reporters.pop()
