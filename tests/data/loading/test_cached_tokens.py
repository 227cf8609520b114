"""Cached tokens, and clips sampled from them."""

import numpy as np
import pytest
import torch
from support.memory_dataset import MemoryDataset

from stillmotion.data.loading.cached_tokens import (
    TokenCache,
    TokenClipDataset,
    TokenGridAugmentation,
    fill_token_cache,
    sample_cached_frames,
)
from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.data.transforms.augment import EvalCrop
from stillmotion.data.transforms.sampling import sample_uniform_clips
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.functional.token_motion import token_matches

NUM_CACHED, SIDE = 6, 4
VIDEOS = SyntheticDataset(SyntheticConfig(num_videos=3, image_size=16, num_frames=20))
CROP = EvalCrop(SIDE, SIDE, mean=(0.0,) * 3, std=(1.0,) * 3, whole_frame=True)


def pixels(views):
    """Use pixels as tokens of three channels."""
    return views[0].permute(1, 2, 3, 0).flatten(1, 2)


def fill_cache(folder, videos=VIDEOS, **options):
    cache = TokenCache(folder, (len(videos), 1, NUM_CACHED, SIDE * SIDE, 3), {})
    return cache, fill_token_cache(pixels, videos, cache, crop=CROP, **options)


def test_tokens_are_of_evenly_spaced_frames_and_computed_once(tmp_path):
    cache, missing = fill_cache(tmp_path)
    assert not missing
    indices = sample_uniform_clips(20, num_frames=NUM_CACHED, stride=0, num_clips=1)[0]
    expected = pixels(CROP(VIDEOS.open_video(2).get_frames(indices.tolist())))
    assert torch.equal(cache.read(2, 0), expected.half().float())
    computed = []
    fill_token_cache(computed.append, VIDEOS, cache, crop=CROP)
    assert not computed


def test_two_processes_write_what_one_does(tmp_path):
    single, _ = fill_cache(tmp_path / "one")
    for rank in range(2):
        shared, _ = fill_cache(tmp_path / "two", rank=rank, world_size=2)
    assert all(torch.equal(single.read(i, 0), shared.read(i, 0)) for i in range(3))


def test_an_unreadable_video_has_no_tokens_and_is_replaced(tmp_path):
    videos = MemoryDataset({"a": VIDEOS.open_video(0), "torn": None, "c": VIDEOS.open_video(2)})
    cache, missing = fill_cache(tmp_path, videos)
    assert missing == {1: "torn: cannot be decoded"}
    data = TokenClipDataset(videos, 4, 0, 2, TokenGridAugmentation(), cache=cache, failed=missing)
    item = data[(0, 1)]
    assert item["index"] in (0, 2)
    assert item["failed"] == [(videos.name(1), "torn: cannot be decoded")]
    with pytest.raises(VideoError, match="torn"):
        TokenClipDataset(videos, 4, 0, 2, TokenGridAugmentation(), strict=True, cache=cache, failed=missing)[1]


def test_clips_are_a_function_of_seed_epoch_and_video(tmp_path):
    data = TokenClipDataset(VIDEOS, 4, 0, 2, TokenGridAugmentation(), cache=fill_cache(tmp_path)[0])
    first = data[(3, 1)]["clips"]
    assert first.shape == (2, 3, 4, SIDE, SIDE)
    assert torch.equal(first, data[(3, 1)]["clips"])
    assert not torch.equal(first, data[(4, 1)]["clips"])


def test_times_go_from_the_first_frame_to_the_last_and_never_back():
    rng = np.random.default_rng(0)
    sampled = np.stack([sample_cached_frames(32, 18, rng) for _ in range(300)])
    assert sampled.min() == 0
    assert sampled.max() == 31
    assert (np.diff(sampled) >= 1).all()
    assert (sampled[:, -1] - sampled[:, 0] >= 26).all()  # 7/8 of 31, up to rounding


def test_a_part_of_the_grid_is_the_same_for_all_frames():
    grid = np.arange(3 * 9 * 9).reshape(3, 9, 9, 1).astype(np.float32)
    rng = np.random.default_rng(0)
    crops = [TokenGridAugmentation(8 / 9)(grid, rng) for _ in range(50)]
    assert {tuple(crop.shape) for crop in crops} == {(1, 3, 8, 8)}
    assert len({float(crop[0, 0, 0, 0]) for crop in crops}) == 8  # four corners, each with and without a flip
    assert all(torch.equal(crop[:, 1] - crop[:, 0], torch.full((1, 8, 8), 81.0)) for crop in crops)


def test_a_mirrored_clip_is_the_flipped_grid_and_a_shifted_one_repeats_its_border():
    grid = np.random.default_rng(0).normal(size=(3, 4, 5, 2)).astype(np.float32)
    original = torch.from_numpy(grid).permute(3, 0, 1, 2)
    rng = np.random.default_rng(0)
    assert torch.equal(TokenGridAugmentation(flip_p=1.0)(grid, rng), original.flip(3))
    padded = torch.nn.functional.pad(original, (1, 1, 0, 0), mode="replicate")
    expected = [padded[..., first : first + 5] for first in range(3)]
    shifted = [TokenGridAugmentation(flip_p=0.0, max_shift=1)(grid, rng) for _ in range(40)]
    matches = [[torch.equal(clip, candidate) for candidate in expected] for clip in shifted]
    assert all(sum(row) == 1 for row in matches)
    assert np.any(matches, 0).all()


def test_a_mirrored_clip_of_matches_has_the_matches_of_the_mirrored_clip():
    tokens = torch.randn(1, 4, 5, 6, 8, generator=torch.Generator().manual_seed(0))
    mirror = TokenGridAugmentation(flip_p=1.0, match_radius=2)
    mirrored = mirror(token_matches(tokens)[0].numpy(), np.random.default_rng(0))
    torch.testing.assert_close(mirrored, token_matches(tokens.flip(3))[0].permute(3, 0, 1, 2))


def test_a_clip_of_the_whole_video_without_flip_and_shift_has_all_its_cached_frames(tmp_path):
    cache, _ = fill_cache(tmp_path)
    options = {"cache": cache, "min_window": 1.0}
    data = TokenClipDataset(VIDEOS, NUM_CACHED, 0, 2, TokenGridAugmentation(flip_p=0.0), **options)
    expected = cache.read(1, 0).unflatten(1, (SIDE, SIDE)).permute(3, 0, 1, 2)
    assert all(torch.equal(clip, expected) for clip in data[(0, 1)]["clips"])


def test_windows_are_as_long_as_asked_and_start_anywhere():
    rng = np.random.default_rng(0)
    sampled = np.stack([sample_cached_frames(33, 9, rng, min_window=0.5) for _ in range(300)])
    spans = sampled[:, -1] - sampled[:, 0]
    assert (spans.min(), spans.max()) == (16, 32)
    assert sampled[:, 0].min() == 0
    assert sampled[:, 0].max() >= 14


def test_whole_frames_are_not_cropped():
    frame = np.zeros((1, 8, 16, 3), np.uint8)
    frame[:, :, :2] = 255
    assert CROP(frame)[0, :, 0, :, 0].min() > 0
    assert EvalCrop(4, 4, mean=(0.0,) * 3, std=(1.0,) * 3)(frame).max() == 0
    with pytest.raises(StillmotionError, match="Whole frames have no crops: num_crops is 3"):
        EvalCrop(4, 4, 3, whole_frame=True)
