"""What an encoder is shown of a video's moments: frames spread over each, decoded once, as small as they are needed.

Shapes: b clips of T frames, H×W pixels; D channels of a look, M of a motion."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(items: Iterable[Item], *, buffer_size: int = 4) -> Iterator[Item]:
    """The same items, made by another thread while the last ones are worked on; at most so many wait."""
    waiting: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(buffer_size)
    stop = threading.Event()
    maker = threading.Thread(target=_produce, args=(items, waiting, stop.is_set), daemon=True)
    maker.start()
    try:
        while (got := waiting.get())[0]:
            yield got[1]  # type: ignore[misc]
        if got[1] is not None:
            raise got[1]  # type: ignore[misc]
    finally:
        stop.set()
        while maker.is_alive():
            _drain(waiting)
            maker.join(0.05)


def _produce(items: Iterable[Item], waiting: "queue.Queue", stopped: Callable[[], bool]) -> None:
    try:
        for item in items:
            waiting.put((True, item))
            if stopped():
                return
        waiting.put((False, None))
    except BaseException as error:
        waiting.put((False, error))


def _drain(waiting: "queue.Queue") -> None:
    while not waiting.empty():
        waiting.get()
