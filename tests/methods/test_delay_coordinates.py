"""Delay coordinates: consecutive frames are concatenated, so that the decomposition keeps their order."""

import pytest
import torch
import torch.nn.functional as F

from stillmotion.errors import StillmotionError
from stillmotion.functional import koopman
from stillmotion.methods.byol import BYOLConfig
from stillmotion.methods.embedding_network import ModelConfig
from stillmotion.methods.method import Method, MethodConfig
from stillmotion.methods.static_dynamic import StaticDynamicConfig, decompose
from stillmotion.models.backbones import create_backbone


def frames(*, clips=2, steps=8, channels=3):
    return torch.randn(clips, steps, channels, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_halves_are_those_of_windows_stacked_by_hand():
    clip = frames()
    windows = torch.stack([torch.stack([clip[:, t + k] for k in range(3)], -1).flatten(1) for t in range(6)], 1)
    for component, expected in zip(
        decompose(clip, StaticDynamicConfig(num_delays=3)), koopman.decompose(windows), strict=True
    ):
        torch.testing.assert_close(component, expected)
        assert component.shape == (2, StaticDynamicConfig(num_delays=3).out_features(3))


def test_one_delay_is_the_plain_split():
    for component, expected in zip(
        decompose(frames(), StaticDynamicConfig()), koopman.decompose(frames()), strict=True
    ):
        assert torch.equal(component, expected)


def test_a_still_clip_has_no_dynamic_half_in_windows_either():
    static, dynamic = decompose(frames(steps=1).expand(-1, 8, -1), StaticDynamicConfig(num_delays=4))
    assert (dynamic.norm(dim=1) <= 1e-4 * static.norm(dim=1)).all()


def test_delays_distinguish_a_motion_from_its_reverse_and_single_frames_do_not():
    """Something appears slowly and disappears fast: a clip and its reverse differ only in the order of the frames."""
    pace = torch.tensor([0.0, 0.1, 0.3, 0.6, 1.0, 0.2, 0.0, 0.0], dtype=torch.float64)
    clip = torch.stack([torch.ones(8, dtype=torch.float64), pace], -1)[None]

    def similarity(num_delays):
        config = StaticDynamicConfig(num_delays=num_delays)
        return F.cosine_similarity(decompose(clip, config)[1], decompose(clip.flip(1), config)[1]).item()

    assert similarity(5) < similarity(1) - 0.05


def test_clips_that_are_too_short_are_named():
    assert StaticDynamicConfig(num_delays=4).min_frames == 6
    with pytest.raises(StillmotionError, match=r"5 time steps, too few for num_delays 4"):
        decompose(frames(steps=5), StaticDynamicConfig(num_delays=4))
    with pytest.raises(StillmotionError, match=r"static_dynamic.num_delays is 0"):
        StaticDynamicConfig(num_delays=0)


def test_objectives_are_as_wide_as_the_halves():
    model = ModelConfig(backbone="small_cnn3d", stage_channels=(4,), embedding_dim=6, projector_hidden_dim=8)
    config = MethodConfig(
        model=model, static_dynamic=StaticDynamicConfig(num_delays=2), objective=BYOLConfig(predictor_hidden_dim=8)
    )
    losses = Method(config)(torch.randn(2, 2, 3, 5, 8, 8)).losses
    assert set(losses) == {"static", "dynamic"}
    assert create_backbone("small_cnn3d", channels=(4,)).out_features == 4
