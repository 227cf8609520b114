"""The order in which an epoch shows the videos of a set: all by chance, or shard by shard with a buffer."""

from collections.abc import Callable, Sequence

import numpy as np

from stillmotion.data.paths import VideoSet
from stillmotion.errors import StillmotionError

Order = Callable[[np.random.Generator], np.ndarray]  # the numbers of all videos, each once


def order_of(videos: VideoSet, buffer: int) -> Order:
    """How these videos are shuffled; buffer: as for `buffered`, of a set in shards; 0 shuffles all at once."""
    if buffer == 0:
        return lambda rng: rng.permutation(len(videos))
    shards = getattr(videos, "shards", None)
    if shards is None:
        raise StillmotionError(
            f"data.shuffle_buffer is {buffer}, but the videos do not lie in shards; leave it out, or make some by "
            "`prepare --form shards`"
        )
    return lambda rng: buffered(shards, buffer, rng)


def buffered(shards: Sequence[np.ndarray], buffer: int, rng: np.random.Generator) -> np.ndarray:
    """The shards by chance, each from its first video to its last, through a buffer that gives out one by chance.

    shards: the numbers of the videos in each. Two videos meet in a batch only if about as few as the buffer holds lie
    between them; one waits for as long on average.
    """
    stream = np.concatenate([shards[i] for i in rng.permutation(len(shards))])
    if buffer >= len(stream):
        return rng.permutation(stream)
    held, given = stream[:buffer].copy(), np.empty_like(stream)
    # Each step gives out one of those held and takes the next of the stream in; the last ones leave by chance.
    for step, place in enumerate(rng.integers(buffer, size=len(stream) - buffer).tolist()):
        given[step], held[place] = held[place], stream[buffer + step]
    given[len(stream) - buffer :] = rng.permutation(held)
    return given
