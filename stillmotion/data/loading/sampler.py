"""Shuffled order of an epoch: global, or shard by shard with a buffer."""

from collections.abc import Callable, Sequence

import numpy as np

from stillmotion.data.datasets.base import VideoDataset
from stillmotion.errors import StillmotionError

EpochOrder = Callable[[np.random.Generator], np.ndarray]  # gives the indices of all videos, each once


def make_epoch_shuffler(dataset: VideoDataset, buffer_size: int) -> EpochOrder:
    """Build the function that shuffles the videos of an epoch.

    Args:
        dataset: The videos.
        buffer_size: Size of the shuffle buffer for a sharded data set; 0 shuffles all videos.

    Raises:
        StillmotionError: If there is a buffer, but the data set is not sharded.
    """
    if buffer_size == 0:
        return lambda rng: rng.permutation(len(dataset))
    shards = dataset.indices_by_shard
    if shards is None:
        raise StillmotionError(
            f"--data.shuffle-buffer is {buffer_size}, but the data set is not sharded. Omit it, or run "
            "`stillmotion prepare --format shards` first."
        )
    return lambda rng: shuffle_with_buffer(shards, buffer_size, rng)


def shuffle_with_buffer(shards: Sequence[np.ndarray], buffer_size: int, rng: np.random.Generator) -> np.ndarray:
    """Shuffle shards, read each sequentially, and sample from a shuffle buffer.

    Two videos can only be in the same batch if about `buffer_size` or fewer videos lie between them.

    Args:
        shards: Indices of the videos of each shard.
        buffer_size: Number of videos in the buffer.
        rng: Random generator.

    Returns:
        Indices of all videos.
    """
    stream = np.concatenate([shards[i] for i in rng.permutation(len(shards))])
    if buffer_size >= len(stream):
        return rng.permutation(stream)
    buffer, order = stream[:buffer_size].copy(), np.empty_like(stream)
    # Each step outputs one video of the buffer and replaces it by the next of the stream.
    for step, slot in enumerate(rng.integers(buffer_size, size=len(stream) - buffer_size).tolist()):
        order[step], buffer[slot] = buffer[slot], stream[buffer_size + step]
    order[len(stream) - buffer_size :] = rng.permutation(buffer)
    return order
