import cv2
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from stillmotion.data.transforms.augment import (
    AUGMENTATIONS,
    ClipAugmentation,
    EvalCrop,
    build_augmentation,
    pair_augmentation,
)
from stillmotion.data.transforms.on_device import apply_params
from stillmotion.data.transforms.parameters import LUMA_WEIGHTS
from stillmotion.errors import StillmotionError


@pytest.fixture
def clip() -> np.ndarray:
    """Return four different smooth frames, 60×80."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(30, 220, (4, 6, 8, 3)).astype(np.uint8)
    return np.stack([cv2.resize(frame, (80, 60), interpolation=cv2.INTER_CUBIC) for frame in coarse])


def static_augmentation(size: int = 40, **changes: object) -> ClipAugmentation:
    options: dict[str, object] = {"scale": None, "flip_p": 0, "color_jitter_p": 0, "gray_p": 0, "blur_p": 0}
    return ClipAugmentation(size, **(options | {"mean": (0, 0, 0), "std": (1, 1, 1)} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_clips_finished_on_a_device_are_those_of_the_workers_up_to_rounding(clip: np.ndarray, name: str) -> None:
    preset = build_augmentation(name, size=40)
    cropped = [preset.crop_only(clip, np.random.default_rng(seed)) for seed in range(20)]
    crops = torch.stack([crop for crop, _ in cropped]).unflatten(0, (10, 2))
    assert crops.dtype == torch.uint8
    params = np.stack([packed for _, packed in cropped]).reshape(10, 2, -1)
    augmented = preset.apply_on_device(crops, params).flatten(0, 1)
    for seed, one in enumerate(augmented):
        expected = preset(clip, np.random.default_rng(seed))
        gap = (expected - one).abs() * 255 * torch.tensor(preset.std).view(3, 1, 1, 1)
        # The steps in workers round to uint8, and their blur uses fixed-point numbers.
        assert gap.mean() < 1.0
        assert gap.max() < 2.5


def test_the_blur_on_a_device_is_a_gaussian_of_each_clips_own_sigma() -> None:
    dot = torch.zeros(2, 3, 1, 41, 41, dtype=torch.uint8)
    dot[..., 20, 20] = 255
    changes = torch.cat([torch.eye(3).flatten().repeat(2, 1), torch.tensor([[0.0, 1.0], [0.0, 2.0]])], 1)
    augmented = apply_params(dot, changes, kernel_size=33, mean=(0, 0, 0), std=(1, 1, 1))
    at = torch.arange(41.0) - 20
    for clip, sigma in zip(augmented, (1.0, 2.0), strict=True):
        line = torch.exp(-(at**2) / (2 * sigma**2))
        expected = torch.outer(line, line) / line.sum() ** 2
        torch.testing.assert_close(clip, expected.expand_as(clip), atol=1e-6, rtol=0)


def test_one_draw_serves_all_frames_of_a_clip(clip: np.ndarray) -> None:
    repeated = np.repeat(clip[:1], 5, axis=0)
    out = build_augmentation("slowfast", size=32)(repeated, np.random.default_rng(3))
    assert out.shape == (3, 5, 32, 32)
    assert out.dtype == torch.float32
    assert torch.equal(out, out[:, :1].expand_as(out))


def test_no_augmentation_is_the_centre_square_normalised(clip: np.ndarray) -> None:
    out = build_augmentation("none", size=60)(clip, np.random.default_rng(0))
    expected = torch.from_numpy(clip[:, :, 10:70] / 255.0).permute(3, 0, 1, 2).float()
    torch.testing.assert_close(out, (expected - 0.45) / 0.225)


def test_flip_mirrors_and_gray_leaves_luma(clip: np.ndarray) -> None:
    rng = np.random.default_rng
    original = static_augmentation(60)(clip, rng(0))
    torch.testing.assert_close(static_augmentation(60, flip_p=1)(clip, rng(0)), original.flip(-1))
    gray = static_augmentation(60, gray_p=1)(clip, rng(0))
    torch.testing.assert_close(gray[0], gray[2], atol=1.1 / 255, rtol=0)
    luma = torch.einsum("c,cthw->thw", torch.tensor(LUMA_WEIGHTS, dtype=torch.float32), original)
    torch.testing.assert_close(gray[0], luma, atol=1.1 / 255, rtol=0)


def test_contrast_keeps_the_mean_luma_and_the_trend_between_frames() -> None:
    ramp = np.stack([np.full((20, 20, 3), level, np.uint8) for level in (80, 100, 120, 140)])
    out = static_augmentation(20, color_jitter=(0, 0.5, 0, 0), color_jitter_p=1)(ramp, np.random.default_rng(0)) * 255
    levels = out.mean((0, 2, 3))
    assert levels.mean() == pytest.approx(110, abs=1)
    assert (levels.diff() > 5).all()


def test_hue_turns_colours_and_keeps_luma_and_grey() -> None:
    patches = np.array([[[120, 120, 120], [150, 110, 100]]], np.uint8)[None].repeat(20, 1).repeat(10, 2)
    out = (
        static_augmentation(20, color_jitter=(0, 0, 0, 0.2), color_jitter_p=1)(patches, np.random.default_rng(1))[
            :, 0, 10
        ]
        * 255
    )
    gray, red = out[:, 2], out[:, -2]
    torch.testing.assert_close(gray, torch.full((3,), 120.0), atol=1.1, rtol=0)
    assert float(red @ torch.tensor(LUMA_WEIGHTS, dtype=torch.float32)) == pytest.approx(120.8, abs=1.1)
    assert (red - torch.tensor([150.0, 110.0, 100.0])).abs().max() > 5


def test_crops_have_the_areas_and_ratios_of_the_recipe() -> None:
    box = build_augmentation("slowfast", size=32).get_params(np.random.default_rng(0), 4000, 240, 320).crop_box
    top, left, height, width = box.T
    assert min(top.min(), left.min()) >= 0
    assert (top + height).max() <= 240
    assert (left + width).max() <= 320
    area, ratio = height * width / (240 * 320), width / height
    assert 0.19 < area.min() < 0.22
    assert 0.74 < area.max() < 0.78
    assert 0.73 < ratio.min() < 0.77
    assert 1.3 < ratio.max() < 1.36


def test_crops_fit_where_no_try_does() -> None:
    box = ClipAugmentation(8, scale=(0.9, 1.0)).get_params(np.random.default_rng(0), 50, 10, 200).crop_box
    assert (box[:, 2] == 10).all()
    assert (box[:, 3] == 13).all()


def test_probabilities_are_those_of_the_recipe() -> None:
    params = build_augmentation("slowfast", size=32).get_params(np.random.default_rng(0), 4000, 60, 80)
    assert params.flip.mean() == pytest.approx(0.5, abs=0.03)
    assert (params.blur_sigma > 0).mean() == pytest.approx(0.5, abs=0.03)
    unchanged = np.abs(params.color_matrix - np.eye(3)).max((1, 2)) < 1e-6
    assert unchanged.mean() == pytest.approx(0.2 * 0.8, abs=0.03)
    gray = np.ptp(params.color_matrix, axis=1).max(1) < 1e-6
    assert gray.mean() == pytest.approx(0.2, abs=0.03)


def test_three_crops_walk_the_longer_edge(clip: np.ndarray) -> None:
    tall = clip.transpose(0, 2, 1, 3)
    original = torch.from_numpy(clip / 255.0).permute(3, 0, 1, 2).float()
    out = EvalCrop(60, 60, 3, mean=(0, 0, 0), std=(1, 1, 1))(clip)
    for crop, left in zip(out, (0, 10, 20), strict=True):
        torch.testing.assert_close(crop, original[..., left : left + 60])
    tall_crops = EvalCrop(60, 60, 3, mean=(0, 0, 0), std=(1, 1, 1))(tall)
    torch.testing.assert_close(tall_crops, out.transpose(-1, -2))
    assert EvalCrop(32, 40)(clip).shape == (1, 3, 4, 32, 32)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(StillmotionError, match="must be 1"):
        EvalCrop(32, 32, 2)
    with pytest.raises(StillmotionError, match="short_side is 16, less than the crop size 32"):
        EvalCrop(32, 16)
    with pytest.raises(StillmotionError, match="No augmentation 'strong'"):
        build_augmentation("strong", size=32)


def test_a_squashed_crop_is_cut_from_a_square_and_enlarged_bicubically() -> None:
    picture = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 255, (1, 60, 100, 3), np.uint8)[0], (0, 0), 2)[None]
    augment = pair_augmentation(32, scale=(0.5, 1.0), mean=(0, 0, 0), std=(1, 1, 1), flip_p=0.0, squash=True)
    params = augment.get_params(np.random.default_rng(3), 1, 60, 100)
    top, left, height, width = params.crop_box[0].tolist()
    pixels = torch.from_numpy(picture).movedim(-1, 1).float() / 255
    square = F.interpolate(pixels, (32, 32), mode="bilinear", antialias=True)
    crop = square[:, :, top : top + height, left : left + width]
    expected = F.interpolate(crop, (32, 32), mode="bicubic", antialias=True).clamp(0, 1)
    torch.testing.assert_close(augment.apply(picture, params)[:, 0], expected[0], atol=3 / 255, rtol=0)
    boxes = augment.get_params(np.random.default_rng(0), 4000, 60, 100).crop_box
    areas = np.random.default_rng(1).uniform(0.5, 1, 100_000)
    ratio = np.exp(np.random.default_rng(2).uniform(np.log(3 / 4), np.log(4 / 3), 100_000))
    mean_area = (np.minimum(np.sqrt(areas * ratio), 1) * np.minimum(np.sqrt(areas / ratio), 1)).mean()
    assert np.mean(boxes[:, 2] * boxes[:, 3]) / 32**2 == pytest.approx(mean_area, abs=0.01)
