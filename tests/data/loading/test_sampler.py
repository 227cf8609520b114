from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.data.datasets.wrappers import Subset
from stillmotion.data.loading.clip_dataset import TrainClipDataset
from stillmotion.data.loading.loader import ClipLoader
from stillmotion.data.loading.sampler import make_epoch_shuffler, shuffle_with_buffer
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.transforms.augment import build_augmentation
from stillmotion.errors import StillmotionError


def epoch_batches(
    *, batch: int, rank: int = 0, world: int = 1, start: int = 0, epoch: int = 1, workers: int = 0
) -> list[list]:
    synthetic = SyntheticDataset(SyntheticConfig(num_videos=24, image_size=16, num_frames=6))
    videos = Subset(synthetic, np.arange(24))
    videos.indices_by_shard = np.split(np.random.default_rng(0).permutation(24), [5, 13])
    dataset = TrainClipDataset(videos, 4, 1, 1, build_augmentation("none", size=16))
    order = make_epoch_shuffler(videos, 6)
    loader = ClipLoader(
        dataset, batch_size=batch, rank=rank, world_size=world, seed=2, epoch_order=order, num_workers=workers
    )
    return [batch["index"].tolist() for batch in loader.iter_epoch(epoch, start)]


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8), buffer=st.integers(1, 40), seed=st.integers(0, 99))
def test_a_buffer_gives_every_video_once_and_none_before_it_is_in_the_buffer(
    sizes: list[int], buffer: int, seed: int
) -> None:
    shards = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    order = shuffle_with_buffer(shards, buffer, np.random.default_rng(seed)).tolist()
    assert sorted(order) == list(range(sum(sizes)))
    stream = np.concatenate([shards[i] for i in np.random.default_rng(seed).permutation(len(shards))]).tolist()
    # Replays the buffer literally: each sampled video is in it.
    buffer_videos: list[int] = []
    remaining = iter(stream)
    for video in order:
        buffer_videos += [x for _, x in zip(range(buffer - len(buffer_videos)), remaining, strict=False)]
        assert video in buffer_videos
        buffer_videos.remove(video)


def test_a_buffer_of_one_reads_shards_from_end_to_end_and_one_of_all_shuffles_all() -> None:
    shards = [np.arange(4), np.arange(20, 26), np.arange(40, 42)]
    order = shuffle_with_buffer(shards, 1, np.random.default_rng(0))
    cuts = np.split(order, np.flatnonzero(np.diff(order) != 1) + 1)
    assert sorted(cut.tolist() for cut in cuts) == sorted(shard.tolist() for shard in shards)
    mixed = np.array([shuffle_with_buffer(shards, 12, np.random.default_rng(seed)) for seed in range(3000)])
    assert mixed.mean(0) == pytest.approx(np.full(12, np.concatenate(shards).mean()), abs=1.2)


def test_buffered_batches_are_the_same_on_ranks_from_any_step_and_in_workers() -> None:
    batches = epoch_batches(batch=4)
    assert sorted(index for batch in batches for index in batch) == list(range(24))
    ranks = [epoch_batches(batch=2, rank=rank, world=2) for rank in (0, 1)]
    assert [a + b for a, b in zip(*ranks, strict=True)] == batches
    assert epoch_batches(batch=4, start=3) == batches[3:]
    assert epoch_batches(batch=4, workers=2) == batches
    assert epoch_batches(batch=4, epoch=2) != batches


def test_a_buffer_without_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StillmotionError, match=r"--data\.shuffle-buffer is 8, but the data set is not sharded"):
        make_epoch_shuffler(SyntheticDataset(SyntheticConfig(num_videos=4)), 8)
