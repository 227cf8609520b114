"""The order in which an epoch shows the videos of a set: all by chance, or shard by shard with a buffer."""

from collections.abc import Callable, Sequence

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.errors import StillmotionError

EpochOrder = Callable[[np.random.Generator], np.ndarray]  # the numbers of all videos, each once


def build_epoch_order(dataset: VideoDataset, buffer_size: int) -> EpochOrder:
    """How these videos are shuffled; buffer: as for `buffered`, of a set in shards; 0 shuffles all at once."""
    if buffer_size == 0:
        return lambda rng: rng.permutation(len(dataset))
    shards = dataset.indices_by_shard
    if shards is None:
        raise StillmotionError(
            f"data.shuffle_buffer is {buffer_size}, but the videos do not lie in shards; leave it out, or make some by "
            "`prepare --format shards`"
        )
    return lambda rng: shuffle_with_buffer(shards, buffer_size, rng)


def shuffle_with_buffer(shards: Sequence[np.ndarray], buffer_size: int, rng: np.random.Generator) -> np.ndarray:
    """The shards by chance, each from its first video to its last, through a buffer that gives out one by chance.

    shards: the numbers of the videos in each. Two videos meet in a batch only if about as few as the buffer holds lie
    between them; one waits for as long on average.
    """
    stream = np.concatenate([shards[i] for i in rng.permutation(len(shards))])
    if buffer_size >= len(stream):
        return rng.permutation(stream)
    held, given = stream[:buffer_size].copy(), np.empty_like(stream)
    # Each step gives out one of those held and takes the next of the stream in; the last ones leave by chance.
    for step, place in enumerate(rng.integers(buffer_size, size=len(stream) - buffer_size).tolist()):
        given[step], held[place] = held[place], stream[buffer_size + step]
    given[len(stream) - buffer_size :] = rng.permutation(held)
    return given
