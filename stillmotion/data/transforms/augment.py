"""`ClipAugmentation` (SimCLR and MoCo v2 for video, OpenCV) and `EvalCrop`; presets.

All frames of a clip share the same random parameters. Brightness, contrast, saturation, hue (a rotation of the chroma
plane, where torchvision shifts HSV) and gray are affine in RGB and commute, so that they are one 3×4 matrix, and values
are clipped once, at the end. Contrast blends with the mean luma of the clip instead of each frame, which preserves
trends of brightness. Resizing is bilinear without antialiasing up to a factor of two, and by area beyond that. The
steps after the crop can be left to `on_device.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import torch
from PIL import Image

from stillmotion.data.transforms.on_device import apply_params
from stillmotion.data.transforms.parameters import (
    LUMA_WEIGHTS,
    AugmentParams,
    center_crop_boxes,
    color_matrices,
    random_crop_boxes,
)
from stillmotion.data.video.frame_size import short_side_size
from stillmotion.errors import StillmotionError
from stillmotion.models.input_config import IMAGENET_NORMALIZATION


@dataclass(frozen=True)
class ClipAugmentation:
    """Random augmentation of a clip: uint8 (T, H, W, 3) to normalized float32 (3, T, size, size).

    Attributes:
        size: Height and width of the output.
        scale: Range of the area of the random resized crop, as a fraction of the frame; None is the center crop.
        ratio: Range of the aspect ratio of the crop.
        flip_p: Probability of a horizontal flip.
        color_jitter: Half-ranges of brightness, contrast, saturation and hue.
        color_jitter_p: Probability of color jitter.
        gray_p: Probability of conversion to gray.
        blur_p: Probability of Gaussian blur.
        blur_sigma: Range of the standard deviation of the blur, in pixels of the output.
        blur_kernel_size: Size of the blur kernel; None fits it to sigma.
        short_side: Shorter side to which frames are resized before the crop; None keeps their size.
        squash: Resize frames to size × size before the crop, whatever their shape, and the crop bicubically (Pillow).
        mean: Mean of each channel, on the scale 0 to 1.
        std: Standard deviation of each channel.
    """

    size: int
    scale: tuple[float, float] | None = (0.2, 0.766)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip_p: float = 0.5
    color_jitter: tuple[float, float, float, float] = (0.6, 0.6, 0.6, 0.15)
    color_jitter_p: float = 0.8
    gray_p: float = 0.2
    blur_p: float = 0.5
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    blur_kernel_size: int | None = None
    short_side: int | None = None
    squash: bool = False
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise StillmotionError(f"size is {self.size}; must be at least 1")
        if self.scale is None and self.short_side is not None:
            _check_short_side(self.short_side, self.size)
        if self.blur_kernel_size is not None and self.blur_kernel_size % 2 == 0:
            raise StillmotionError(f"blur_kernel_size is {self.blur_kernel_size}; must be odd")

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
        return self.apply(clip, self.get_params(rng, 1, *clip.shape[1:3]))

    def crop_only(self, clip: np.ndarray, rng: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
        """Crop and flip on the CPU; `apply_on_device` does the rest.

        Args:
            clip: Frames, uint8 (T, H, W, 3).
            rng: Random generator.

        Returns:
            The crop, uint8 (3, T, size, size), and the packed parameters (11,) for `apply_on_device`.
        """
        params = self.get_params(rng, 1, *clip.shape[1:3])
        crop = np.ascontiguousarray(self._crop(clip, params).transpose(3, 0, 1, 2))
        return torch.from_numpy(crop), params.packed[0]

    def apply_on_device(self, clips: torch.Tensor, params: np.ndarray) -> torch.Tensor:
        """Apply color, blur and normalization to the crops of `crop_only`.

        Args:
            clips: Crops on any device, uint8 (…, 3, T, size, size).
            params: Packed parameters (…, 11).
        """
        kernel_size = self._kernel_size(self.blur_sigma[1])
        return apply_params(clips, torch.from_numpy(params), kernel_size=kernel_size, mean=self.mean, std=self.std)

    def get_params(self, rng: np.random.Generator, n: int, height: int, width: int) -> AugmentParams:
        """Sample random parameters.

        Args:
            rng: Random generator.
            n: Number of clips.
            height: Height of the frames.
            width: Width of the frames.
        """
        height, width = (self.size,) * 2 if self.squash else short_side_size((height, width), self.short_side)
        if self.scale is None:
            box = center_crop_boxes(n, height, width, side=self.size if self.short_side else min(height, width))
        else:
            box = random_crop_boxes(rng, n, height, width, scale=self.scale, ratio=self.ratio, cut=self.squash)
        flip = rng.random(n) < self.flip_p
        brightness, contrast, saturation = (rng.uniform(max(0, 1 - j), 1 + j, n) for j in self.color_jitter[:3])
        angle = 2 * np.pi * rng.uniform(-self.color_jitter[3], self.color_jitter[3], n)
        no_jitter = rng.random(n) >= self.color_jitter_p
        for factor in (brightness, contrast, saturation):
            factor[no_jitter] = 1
        angle[no_jitter] = 0
        saturation[rng.random(n) < self.gray_p] = 0
        sigma = np.where(rng.random(n) < self.blur_p, rng.uniform(*self.blur_sigma, n), 0.0)
        matrix = color_matrices(brightness * contrast, saturation, angle)
        return AugmentParams(box, flip, matrix, brightness * (1 - contrast), sigma)

    def apply(self, clip: np.ndarray, params: AugmentParams) -> torch.Tensor:
        """Apply the parameters of one clip.

        Args:
            clip: Frames, uint8 (T, H, W, 3).
            params: Parameters of one clip.

        Returns:
            Normalized float32 (3, T, size, size).
        """
        out, size = self._crop(clip, params), self.size
        matrix, offset = params.color_matrix[0], params.luma_offset[0]
        if offset != 0 or not np.allclose(matrix, np.eye(3)):
            luma = float(LUMA_WEIGHTS @ cv2.mean(out.reshape(-1, size, 3))[:3])
            affine = np.column_stack([matrix, np.full(3, offset * luma)]).astype(np.float32)
            out = cv2.transform(out.reshape(-1, size, 3), affine).reshape(out.shape)
        sigma = float(params.blur_sigma[0])
        if sigma > 0:
            kernel = (self._kernel_size(sigma),) * 2
            for frame in out:
                cv2.GaussianBlur(frame, kernel, sigma, dst=frame, borderType=cv2.BORDER_REFLECT_101)
        return normalize_clip(out, self.mean, self.std)

    def _crop(self, clip: np.ndarray, params: AugmentParams) -> np.ndarray:
        """Crop, resize and flip: uint8 (T, H, W, 3) to uint8 (T, size, size, 3)."""
        top, left, height, width = params.crop_box[0].tolist()
        size = self.size
        out: np.ndarray = np.empty((len(clip), size, size, 3), np.uint8)
        large = height >= 2 * size and width >= 2 * size
        if self.squash:
            box = (left, top, left + width, top + height)
            for frame, target in zip(clip, out, strict=True):
                square = Image.fromarray(frame).resize((size, size), Image.Resampling.BILINEAR)
                target[:] = square.crop(box).resize((size, size), Image.Resampling.BICUBIC)
            return out[:, :, ::-1] if params.flip[0] else out
        for frame, target in zip(resize_short_side(clip, self.short_side), out, strict=True):
            crop = frame[top : top + height, left : left + width]
            cv2.resize(crop, (size, size), dst=target, interpolation=cv2.INTER_AREA if large else cv2.INTER_LINEAR)
            if params.flip[0]:
                cv2.flip(target, 1, dst=target)
        return out

    def _kernel_size(self, sigma: float) -> int:
        """Size of the blur kernel: three sigmas to each side, within the frame."""
        kernel_size = self.blur_kernel_size or 2 * int(np.ceil(3 * sigma)) + 1
        return min(kernel_size, 2 * self.size - 1)


def _check_short_side(short_side: int, size: int) -> None:
    if short_side < size:
        raise StillmotionError(f"short_side is {short_side}, less than the crop size {size}; increase short_side")


@dataclass(frozen=True)
class EvalCrop:
    """Crops for evaluation: uint8 (T, H, W, 3) to normalized float32 (num_crops, 3, T, size, size).

    Attributes:
        size: Height and width of a crop.
        short_side: Shorter side to which frames are resized before the crop.
        num_crops: 1 (center) or 3 (along the longer side).
        mean: Mean of each channel, on the scale 0 to 1.
        std: Standard deviation of each channel.
        whole_frame: Resize the whole frame to `size`, whatever its shape, instead of cropping it.
        frame_width: Width of whole frames; 0 is `size`.
    """

    size: int
    short_side: int
    num_crops: int = 1
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)
    whole_frame: bool = False
    frame_width: int = 0

    def __post_init__(self) -> None:
        if self.whole_frame and self.num_crops != 1:
            raise StillmotionError(f"Whole frames have no crops: num_crops is {self.num_crops}, must be 1")
        if self.num_crops not in (1, 3):
            raise StillmotionError(f"num_crops is {self.num_crops}; must be 1 (center) or 3 (along the longer side)")
        _check_short_side(self.short_side, self.size)

    def __call__(self, clip: np.ndarray) -> torch.Tensor:
        if self.whole_frame:
            interpolation = cv2.INTER_AREA if min(clip.shape[1:3]) >= 2 * self.size else cv2.INTER_LINEAR
            shape = (self.frame_width or self.size, self.size)
            resized = np.stack([cv2.resize(frame, shape, interpolation=interpolation) for frame in clip])
            return normalize_clip(resized, self.mean, self.std)[None]
        frames = np.stack(list(resize_short_side(clip, self.short_side)))
        top, left = (frames.shape[1] - self.size) // 2, (frames.shape[2] - self.size) // 2
        corners = [(top, left)]
        if self.num_crops == 3:
            corners = [(i * top, left) if top > left else (top, i * left) for i in range(3)]
        views = [frames[:, y : y + self.size, x : x + self.size] for y, x in corners]
        return torch.stack([normalize_clip(view, self.mean, self.std) for view in views])


def resize_short_side(clip: np.ndarray, short_side: int | None) -> Iterable[np.ndarray]:
    """Resize the frames of a clip so that the shorter side has a given length.

    Args:
        clip: Frames, uint8 (T, H, W, 3).
        short_side: Length of the shorter side; None keeps the size.
    """
    return resize_clip(clip, *short_side_size(clip.shape[1:3], short_side))


def resize_clip(clip: np.ndarray, height: int, width: int) -> Iterable[np.ndarray]:
    """Resize the frames of a clip, by area if they shrink by two or more, else bilinearly.

    Args:
        clip: Frames, uint8 (T, H, W, 3).
        height: New height.
        width: New width.
    """
    if (height, width) == clip.shape[1:3]:
        return clip
    interpolation = cv2.INTER_AREA if clip.shape[1] >= 2 * height else cv2.INTER_LINEAR
    return [cv2.resize(frame, (width, height), interpolation=interpolation) for frame in clip]


def normalize_clip(clip: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Normalize a clip.

    Args:
        clip: Frames, uint8 (T, H, W, 3).
        mean: Mean of each channel, on the scale 0 to 1.
        std: Standard deviation of each channel.

    Returns:
        float32 (3, T, H, W).
    """
    frames = torch.from_numpy(np.ascontiguousarray(clip.transpose(3, 0, 1, 2))).float()
    scale = 1 / (255 * torch.tensor(std))
    shift = torch.tensor(mean) / torch.tensor(std)
    return frames.mul_(scale[:, None, None, None]).sub_(shift[:, None, None, None])


# Presets at the sizes of their papers; `build_augmentation` changes the size.
AUGMENTATIONS: dict[str, ClipAugmentation] = {
    # Kinetics recipe of BOD-VCL and of the contrastive models of SlowFast.
    "slowfast": ClipAugmentation(224),
    "vididi": ClipAugmentation(
        112,
        scale=(0.08, 1.0),
        color_jitter=(0.2, 0.2, 0.2, 0.05),
        gray_p=0.5,
        blur_kernel_size=3,
        short_side=150,
        mean=IMAGENET_NORMALIZATION.mean,
        std=IMAGENET_NORMALIZATION.std,
    ),
    "weak": ClipAugmentation(112, scale=(0.5, 1.0), flip_p=0, color_jitter=(0.2, 0.2, 0.2, 0.05), gray_p=0, blur_p=0),
    # Crop, flip and light color jitter, for the demo.
    "light": ClipAugmentation(32, scale=(0.6, 1.0), color_jitter=(0.2, 0.2, 0.2, 0.05), gray_p=0, blur_p=0),
    # Synthetic videos vary by themselves; only a small shift is added.
    "synthetic": ClipAugmentation(
        32, scale=(0.9, 1.0), ratio=(1.0, 1.0), flip_p=0, color_jitter_p=0, gray_p=0, blur_p=0
    ),
    # The center square, resized.
    "none": ClipAugmentation(112, scale=None, flip_p=0, color_jitter_p=0, gray_p=0, blur_p=0),
}


def build_augmentation(name: str, *, size: int) -> ClipAugmentation:
    """Build an augmentation from a preset.

    Args:
        name: One of `AUGMENTATIONS`.
        size: Height and width of the output.

    Raises:
        StillmotionError: If there is no such preset.
    """
    if name not in AUGMENTATIONS:
        raise StillmotionError(f"No augmentation {name!r}; choose one of {', '.join(AUGMENTATIONS)}")
    return replace(AUGMENTATIONS[name], size=size)


def pair_augmentation(
    size: int, *, scale: tuple[float, float], mean: Any, std: Any, flip_p: float = 0.0, squash: bool = False
) -> ClipAugmentation:
    """Build an augmentation with a random resized crop and a random flip only.

    Args:
        size: Height and width of the output.
        scale: Range of the area of the crop, as a fraction of the frame.
        mean: Mean of each channel.
        std: Standard deviation of each channel.
        flip_p: Probability of a horizontal flip.
        squash: As in `ClipAugmentation`.
    """
    augment = ClipAugmentation(size, scale=scale, flip_p=flip_p, squash=squash, mean=tuple(mean), std=tuple(std))
    return replace(augment, color_jitter_p=0, gray_p=0, blur_p=0)
