import numpy as np
import pytest
import torch
from seen_maps import grad_cam, saliency_tube, shown

from stillmotion.data.video import ArrayVideo
from stillmotion.encoders import Encoder
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.explain.cam import PARTS, similarity
from stillmotion.explain.inside import directions, look_inside, middle_clip, squares
from stillmotion.nn.backbones import create_backbone
from stillmotion.nn.intake import Intake, Normalisation

INTAKE = Intake(4, 2, 8, Normalisation((0.45, 0.45, 0.45), (0.225, 0.225, 0.225)))


def pixels(length=12, height=8, width=12):
    return np.random.default_rng(0).integers(0, 255, (length, height, width, 3), np.uint8)


def test_the_middle_clip_is_shown_and_the_first_one_is_the_second():
    numbers = middle_clip(12, INTAKE, name="v", second=True)
    assert numbers.tolist() == [[3, 5, 7, 9], [0, 2, 4, 6]]
    assert middle_clip(8, INTAKE, name="v", second=True).tolist() == [[1, 3, 5, 7], [0, 2, 4, 6]]
    assert middle_clip(7, INTAKE, name="v", second=False).tolist() == [[0, 2, 4, 6]]


def test_a_short_video_is_named_with_what_would_help():
    with pytest.raises(VideoError, match=r"cat.mp4: 6 frames; .* spans 7 \(lower --stride or --frames\)"):
        middle_clip(6, INTAKE, name="cat.mp4", second=False)
    with pytest.raises(VideoError, match=r"begins earlier \(lower --stride or --frames, or give --against"):
        middle_clip(7, INTAKE, name="cat.mp4", second=True)


def test_what_is_found_is_what_its_parts_say_of_the_clip():
    video = ArrayVideo(pixels())
    found = look_inside(shown(intake=INTAKE), video, tubes=True)
    # The frames are as high as a clip is: what is seen is the middle of each, normalised.
    clip = torch.from_numpy(pixels()[[3, 5, 7, 9], :, 2:10].transpose(3, 0, 1, 2) / 255).float().sub(0.45).div(0.225)
    first = torch.from_numpy(pixels()[[0, 2, 4, 6], :, 2:10].transpose(3, 0, 1, 2) / 255).float().sub(0.45).div(0.225)
    reference = directions(shown()(first[None]))
    for part in PARTS:
        target = similarity(part, reference[part])
        assert found.agreement[part] == pytest.approx(target(shown()(clip[None])).item(), abs=1e-5)
        np.testing.assert_allclose(found.heat["grad-cam"][part], grad_cam(shown(), clip, target), atol=1e-5)
        np.testing.assert_allclose(found.heat["tubes"][part], saliency_tube(shown(), clip, reference[part]), atol=1e-5)
    assert found.modes.amplitudes.shape == (3, 4)
    assert found.alike.shape == (4, 4)


def test_directions_are_means_of_directions():
    clips = torch.randn(3, 3, 4, 2, 2, generator=torch.Generator().manual_seed(0))
    embedding = shown()(clips)
    wanted = (embedding.static / embedding.static.norm(dim=1, keepdim=True)).mean(0)
    torch.testing.assert_close(directions(embedding)["static"], wanted / wanted.norm())


def test_squares_are_what_the_encoder_sees():
    small = squares(ArrayVideo(pixels()), [3, 5], INTAKE, side=8)
    np.testing.assert_array_equal(small, pixels()[[3, 5], :, 2:10])
    # From 112 px on, clips are cut from frames that are resized to 256/224 of their size.
    large = squares(ArrayVideo(pixels(20, 64, 80)), range(20), INTAKE.changed({"size": 224}), side=56)
    np.testing.assert_array_equal(large, pixels(20, 64, 80)[:, 4:60, 12:68])


def test_a_network_of_few_time_steps_has_no_modes_and_says_what_it_has():
    encoder = Encoder(create_backbone("small_resnet3d", keep_time=False, channels=(4, 4, 4)), intake=INTAKE).eval()
    with pytest.raises(StillmotionError, match=r"makes 1 time steps .* ask for the tubes of a class"):
        look_inside(encoder, ArrayVideo(pixels()))
