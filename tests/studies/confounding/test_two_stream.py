import cv2
import numpy as np
import pytest
import torch

from stillmotion.data.synthetic.factors import SyntheticConfig, SyntheticDataset
from stillmotion.errors import StillmotionError
from stillmotion.studies.confounding.two_stream import TwoStreamNetwork, motion_channels, sample_clips


def moving_frames(dx, dy, *, frames=3, size=48):
    """Return frames of a smooth texture that moves by (dx, dy) pixels per frame."""
    noise = np.random.default_rng(0).uniform(0, 1, (size + 40, size + 40)).astype(np.float32)
    texture = cv2.normalize(cv2.GaussianBlur(noise, (0, 0), 2.5), None, 20, 230, cv2.NORM_MINMAX).astype(np.uint8)
    views = [texture[20 - dy * t : 20 - dy * t + size, 20 - dx * t : 20 - dx * t + size] for t in range(frames)]
    return np.repeat(np.stack(views)[..., None], 3, -1)


def test_flow_maps_hold_a_known_shift():
    maps = motion_channels(moving_frames(2, -1))
    inside = maps[:, 12:-12, 12:-12]
    np.testing.assert_allclose(inside[:2].mean((1, 2)), 2, atol=0.1)
    np.testing.assert_allclose(inside[2:4].mean((1, 2)), -1, atol=0.1)


def test_a_uniform_change_of_light_is_seen_by_the_differences_alone():
    pixels = moving_frames(0, 0)
    pixels[1:] += 10
    maps = motion_channels(pixels)
    np.testing.assert_allclose(maps[4], 10 / 255, atol=1e-6)
    np.testing.assert_allclose(maps[5], 0, atol=1e-6)
    assert np.abs(maps[:4]).mean() < 0.1


def test_one_frame_has_no_motion():
    with pytest.raises(StillmotionError, match="1 frames has no motion"):
        motion_channels(np.zeros((1, 8, 8, 3), np.uint8))


def test_clips_are_the_same_for_the_same_seed_and_longer_than_no_video():
    videos = SyntheticDataset(SyntheticConfig(num_videos=3), seed=1)
    first, second, other = (sample_clips(videos, num_frames=4, seed=s) for s in (0, 0, 1))
    assert first.frames.shape == (3, 3, 32, 32)
    assert first.motion.shape == (3, 9, 16, 16)
    assert torch.equal(first.motion, second.motion)
    assert not torch.equal(first.frames, other.frames)
    with pytest.raises(StillmotionError, match="num_frames is 33, but videos have 32 frames"):
        sample_clips(videos, num_frames=33, seed=0)


def test_each_stream_sees_its_own_input_only():
    network = TwoStreamNetwork(4, width=4, embedding_dim=8).eval()
    frames, motion = torch.randn(2, 3, 32, 32), torch.randn(2, 9, 16, 16)
    static, dynamic = network(frames, motion)
    assert static.shape == dynamic.shape == (2, 8)
    assert torch.equal(network(frames, -motion)[0], static)
    assert torch.equal(network(-frames, motion)[1], dynamic)
