"""Iterate over items that another thread computes ahead."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(items: Iterable[Item], *, buffer_size: int = 4) -> Iterator[Item]:
    """Compute items in another thread while the previous ones are used.

    Args:
        items: The items; iterated in the other thread.
        buffer_size: Maximum number of items that wait.

    Yields:
        The same items, in order.
    """
    buffer: queue.Queue[tuple[bool, Item | BaseException | None]] = queue.Queue(buffer_size)
    stop = threading.Event()
    producer = threading.Thread(target=_produce, args=(items, buffer, stop.is_set), daemon=True)
    producer.start()
    try:
        while (entry := buffer.get())[0]:
            yield entry[1]  # type: ignore[misc]
        if entry[1] is not None:
            raise entry[1]  # type: ignore[misc]
    finally:
        stop.set()
        while producer.is_alive():
            while not buffer.empty():  # so that the producer is not blocked
                buffer.get()
            producer.join(0.05)


def _produce(items: Iterable[Item], buffer: "queue.Queue", stopped: Callable[[], bool]) -> None:
    try:
        for item in items:
            buffer.put((True, item))
            if stopped():
                return
        buffer.put((False, None))
    except BaseException as error:
        buffer.put((False, error))
