import numpy as np
import pytest
import torch
from support.identity_encoder import clip_grad_cam, clip_saliency_tube, identity_encoder

from stillmotion.data.video.reader import ArrayReader
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.explain.clip_analysis import (
    analyze_clip,
    center_crops_for_display,
    middle_clip_indices,
    unit_directions,
)
from stillmotion.explain.saliency import EMBEDDING_PARTS, cosine_target
from stillmotion.models.backbones import create_backbone
from stillmotion.models.input_config import InputConfig, Normalization

INPUT_CONFIG = InputConfig(4, 2, 8, Normalization((0.45, 0.45, 0.45), (0.225, 0.225, 0.225)))


def pixels(length=12, height=8, width=12):
    return np.random.default_rng(0).integers(0, 255, (length, height, width, 3), np.uint8)


def test_the_middle_clip_is_shown_and_the_first_one_is_the_second():
    numbers = middle_clip_indices(12, INPUT_CONFIG, name="v", with_first_clip=True)
    assert numbers.tolist() == [[3, 5, 7, 9], [0, 2, 4, 6]]
    assert middle_clip_indices(8, INPUT_CONFIG, name="v", with_first_clip=True).tolist() == [[1, 3, 5, 7], [0, 2, 4, 6]]
    assert middle_clip_indices(7, INPUT_CONFIG, name="v", with_first_clip=False).tolist() == [[0, 2, 4, 6]]


def test_a_short_video_is_named_with_what_would_help():
    with pytest.raises(VideoError, match=r"cat.mp4: 6 frames; .* spans 7 \(lower --stride or --num-frames\)"):
        middle_clip_indices(6, INPUT_CONFIG, name="cat.mp4", with_first_clip=False)
    with pytest.raises(
        VideoError, match=r"before the middle one \(lower --stride or --num-frames, or give --reference-video"
    ):
        middle_clip_indices(7, INPUT_CONFIG, name="cat.mp4", with_first_clip=True)


def test_the_analysis_equals_the_functions_that_it_combines():
    video = ArrayReader(pixels())
    result = analyze_clip(identity_encoder(input_config=INPUT_CONFIG), video, with_tubes=True)
    # The frames are as high as the clip, so the input is the normalized centre of each.
    clip = torch.from_numpy(pixels()[[3, 5, 7, 9], :, 2:10].transpose(3, 0, 1, 2) / 255).float().sub(0.45).div(0.225)
    first = torch.from_numpy(pixels()[[0, 2, 4, 6], :, 2:10].transpose(3, 0, 1, 2) / 255).float().sub(0.45).div(0.225)
    reference = unit_directions(identity_encoder()(first[None]))
    for name in EMBEDDING_PARTS:
        target = cosine_target(name, reference[name])
        assert result.target_cosine[name] == pytest.approx(target(identity_encoder()(clip[None])).item(), abs=1e-5)
        np.testing.assert_allclose(
            result.saliency["grad-cam"][name], clip_grad_cam(identity_encoder(), clip, target), atol=1e-5
        )
        np.testing.assert_allclose(
            result.saliency["tubes"][name], clip_saliency_tube(identity_encoder(), clip, reference[name]), atol=1e-5
        )
    assert result.modes.amplitudes.shape == (3, 4)
    assert result.temporal_similarity.shape == (4, 4)


def test_directions_are_means_of_directions():
    clips = torch.randn(3, 3, 4, 2, 2, generator=torch.Generator().manual_seed(0))
    embedding = identity_encoder()(clips)
    expected = (embedding.static / embedding.static.norm(dim=1, keepdim=True)).mean(0)
    torch.testing.assert_close(unit_directions(embedding)["static"], expected / expected.norm())


def test_squares_are_what_the_encoder_sees():
    small = center_crops_for_display(ArrayReader(pixels()), [3, 5], INPUT_CONFIG, side=8)
    np.testing.assert_array_equal(small, pixels()[[3, 5], :, 2:10])
    # From 112 px on, clips are cut from frames that are resized to 256/224 of their size.
    large = center_crops_for_display(
        ArrayReader(pixels(20, 64, 80)), range(20), INPUT_CONFIG.replace({"image_size": 224}), side=56
    )
    np.testing.assert_array_equal(large, pixels(20, 64, 80)[:, 4:60, 12:68])


def test_a_network_of_few_time_steps_has_no_modes_and_says_what_it_has():
    encoder = Encoder(
        create_backbone("small_cnn3d", per_frame_features=False, channels=(4, 4, 4)), input_config=INPUT_CONFIG
    ).eval()
    with pytest.raises(StillmotionError, match=r"produces 1 time steps from 4 frames; .* --class-name"):
        analyze_clip(encoder, ArrayReader(pixels()))
