import numpy as np
import pytest
import torch
from torch.nn import functional as F

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones import create_backbone
from stillmotion.models.feature_maps import FrameFeatureExtractor, feature_map_at, maps_per_frame


def colours(frames):
    return F.avg_pool2d(frames, 4).movedim(1, -1)


def maps_of(backbone, layer=None):
    """Return one map per frame, after `stage` stages."""
    return maps_per_frame(lambda clips: feature_map_at(backbone, clips, layer))


def test_any_callable_of_frames_is_an_encoder():
    encoder = FrameFeatureExtractor(colours, mean=(0.5, 0, 0), std=(0.5, 1, 2))
    result = encoder(np.full((3, 8, 12, 3), 255, np.uint8))
    assert result.shape == (3, 2, 3, 3)
    torch.testing.assert_close(result[0, 0, 0], torch.tensor([1.0, 1.0, 0.5]))
    with pytest.raises(StillmotionError, match=r"expected \(frames, rows, columns, channels\)"):
        FrameFeatureExtractor(lambda x: x.mean((2, 3)), mean=(0, 0, 0), std=(1, 1, 1))(np.zeros((3, 8, 8, 3), np.uint8))


def test_sizes_are_those_the_network_takes():
    encoder = FrameFeatureExtractor(colours, mean=(), std=(), size_divisor=14, min_size=28)
    assert encoder.nearest_valid_size(240, 428) == (238, 434)
    assert encoder.nearest_valid_size(3, 30) == (28, 28)


@pytest.mark.parametrize("length", [1, 3, 4, 7, 8])
def test_every_frame_has_one_map_whatever_the_length(length):
    video = np.arange(length, dtype=np.uint8)[:, None, None, None] * np.ones((1, 4, 4, 3), np.uint8)
    clip_lengths = []
    encoder = FrameFeatureExtractor(
        lambda x: clip_lengths.append(len(x)) or colours(x), mean=(0,) * 3, std=(1,) * 3, clip_length=4
    )
    result = [float(m[0, 0, 0]) * 255 for m in encoder.iter_maps(length, lambda numbers: video[numbers])]
    assert result == pytest.approx(range(length))
    assert set(clip_lengths) == {4}


@pytest.mark.parametrize(("name", "options"), [("small_cnn3d", {"channels": (4, 6, 8)}), ("small_vit", {"depth": 2})])
def test_maps_of_a_backbone_are_its_feature_maps_for_each_frame(name, options):
    torch.manual_seed(0)
    backbone = create_backbone(name, **options).eval()
    frames = torch.randn(4, 3, 32, 48)
    with torch.no_grad():
        expected = backbone.feature_map(frames.transpose(0, 1)[None])[0]
        result = maps_of(backbone)(frames)
        for number in range(1, len(backbone.stage_prefixes)):
            early = maps_of(backbone, number)(frames)
            assert len(early) == 4
            assert early.shape[1] >= result.shape[1]
            assert early.shape[1] < early.shape[2]
    assert result.shape == (4, *expected.shape[2:], backbone.out_features)
    for t in range(4):
        torch.testing.assert_close(result[t], expected[:, t * expected.shape[1] // 4].movedim(0, -1))
    with pytest.raises(StillmotionError, match="layer is 9; must be between 1 and the number of stages, 3"):
        maps_of(create_backbone("small_cnn3d", channels=(4, 6, 8)), 9)(frames)


def test_the_early_map_of_a_cnn_is_what_its_stage_returns():
    torch.manual_seed(0)
    backbone = create_backbone("small_cnn3d", channels=(4, 6, 8)).eval()
    frames = torch.randn(3, 3, 16, 24)
    with torch.no_grad():
        expected = backbone.layers[1](backbone.layers[0](frames.transpose(0, 1)[None]))[0].movedim(0, -1)
        torch.testing.assert_close(maps_of(backbone, 2)(frames), expected)
