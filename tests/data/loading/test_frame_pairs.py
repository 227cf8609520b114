import pickle

import numpy as np
import pytest
import torch
from support.memory_dataset import MemoryDataset

from stillmotion.data.loading.cached_tokens import TokenCache
from stillmotion.data.loading.clip_dataset import FramePairDataset
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.transforms.augment import pair_augmentation
from stillmotion.data.transforms.sampling import sample_frame_pair
from stillmotion.errors import StillmotionError, VideoError


def dataset(**options):
    videos = SyntheticDataset(SyntheticConfig(num_videos=3, image_size=24, num_frames=20))
    augment = pair_augmentation(16, scale=(0.5, 1.0), mean=(0.5,) * 3, std=(0.5,) * 3)
    return FramePairDataset(videos, num_frames=2, stride=1, num_clips=1, augment=augment, **options)


@pytest.mark.parametrize(("length", "step"), [(100, 15), (20, 3), (3, 1), (2, 1)])
def test_pairs_lie_a_share_of_the_length_apart(length, step):
    starts = set()
    for seed in range(300):
        ((first, second),) = sample_frame_pair(length, gap=0.15, rng=np.random.default_rng(seed))
        assert second - first == step
        assert second < length
        starts.add(int(first))
    assert min(starts) == 0
    assert max(starts) == length - step - 1


def test_a_single_frame_has_no_pair():
    with pytest.raises(VideoError, match="no pair"):
        sample_frame_pair(1, gap=0.15, rng=np.random.default_rng(0))
    with pytest.raises(StillmotionError, match="gap is 2"):
        sample_frame_pair(9, gap=2, rng=np.random.default_rng(0))


def test_both_frames_are_cut_by_the_same_box():
    picture = np.random.default_rng(0).integers(0, 255, (1, 30, 40, 3), np.uint8)
    videos = MemoryDataset({"same": np.repeat(picture, 20, 0)})
    data = FramePairDataset(videos, num_frames=2, stride=1, num_clips=1, augment=dataset().augment)
    views = [data[(epoch, 0)]["clips"][0] for epoch in range(3)]
    for clip in views:
        assert torch.equal(clip[:, 0], clip[:, 1])
    assert not torch.equal(views[0], views[1])


def test_both_frames_are_mirrored_or_neither():
    picture = np.random.default_rng(0).integers(0, 255, (1, 16, 16, 3), np.uint8).repeat(2, 0)
    cut = [
        pair_augmentation(16, scale=(1.0, 1.0), mean=(0.5,) * 3, std=(0.5,) * 3, flip_p=flip)
        for flip in (0.0, 0.5, 1.0)
    ]
    original, mirrored = (augment(picture, np.random.default_rng(0)) for augment in (cut[0], cut[2]))
    assert torch.equal(mirrored, original.flip(-1))
    clips = [cut[1](picture, np.random.default_rng(seed)) for seed in range(100)]
    is_mirrored = [
        bool(torch.equal(clip[:, 0], clip[:, 1]) and torch.equal(clip[:, 0], mirrored[:, 0])) for clip in clips
    ]
    assert 35 < sum(is_mirrored) < 65
    assert all(torch.equal(clip[:, 0], clip[:, 1]) for clip in clips)


def test_epochs_take_the_fixed_pairs_in_turn():
    fixed, free = dataset(pairs_per_video=2), dataset()
    assert torch.equal(fixed[(0, 1)]["clips"], fixed[(2, 1)]["clips"])
    assert not torch.equal(fixed[(0, 1)]["clips"], fixed[(1, 1)]["clips"])
    assert not torch.equal(free[(0, 1)]["clips"], free[(2, 1)]["clips"])


def test_cached_tokens_are_read_in_any_process_and_their_frames_are_not_decoded(tmp_path):
    cache = TokenCache(tmp_path, (3, 2, 2, 4, 5), {"model": "a"})
    tokens = torch.randn(2, 4, 5)
    assert not cache.has(1, 0)
    written = cache.write(1, 0, tokens)
    assert torch.equal(written, tokens.half().float())
    second, copied = TokenCache(tmp_path, (3, 2, 2, 4, 5), {"model": "a"}), pickle.loads(pickle.dumps(cache))
    for cache_copy in (second, copied):
        assert cache_copy.has(1, 0)
        assert not cache_copy.has(1, 1)
        assert torch.equal(cache_copy.read(1, 0), written)
    assert not TokenCache(tmp_path, (3, 2, 2, 4, 5), {"model": "b"}).has(1, 0)
    data = dataset(pairs_per_video=2, token_cache=cache)
    assert not data[(0, 1)]["clips"].any()
    assert data[(1, 1)]["clips"].any()
