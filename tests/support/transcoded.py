"""Recording of the videos that a call transcodes, from its log."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def record_transcoded() -> Iterator[list[str]]:
    """Collect the output paths of the videos that are transcoded inside, in order."""
    paths: list[str] = []
    handler = logging.Handler()
    handler.addFilter(lambda record: record.levelno == logging.DEBUG)
    handler.emit = lambda record: paths.append(record.args[0])  # type: ignore[method-assign, index]
    logger = logging.getLogger("stillmotion.data.transcode.transcode_job")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield paths
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
