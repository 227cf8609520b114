"""The SimCLR and MoCo-v2 augmentations of video, one draw per clip, by OpenCV on uint8.

Brightness, contrast, saturation, hue (a rotation of the chroma plane, where torchvision turns HSV) and grey are all
affine in RGB and commute, so that a draw is one 3×4 matrix and values are clipped once, at its end. Contrast blends
with the mean luma of the clip rather than of each frame, which leaves trends of brightness in. Resizing is bilinear
without antialiasing up to a factor of two, by area beyond. What follows the cut may be left to `device.py`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
import torch

from stillmotion.data.transforms.on_device import apply_params
from stillmotion.data.transforms.parameters import (
    LUMA_WEIGHTS,
    AugmentParams,
    center_crop_boxes,
    color_matrices,
    random_crop_boxes,
)
from stillmotion.errors import StillmotionError
from stillmotion.utils.images import short_side_size


@dataclass(frozen=True)
class ClipAugmentation:
    """uint8 (T, H, W, 3) → float32 (3, T, size, size), normalised; one draw for all frames of the clip.

    scale, ratio: of the random resized crop; area None is the centre crop.
    color_jitter: half-ranges of brightness, contrast, saturation and hue; jitter_p, gray, blur_p, flip: probabilities.
    blur_sigma: range in pixels of the output; blur_kernel: taps, None for as many as the sigma needs.
    short_side: shorter edge that frames are resized to before the crop; None crops the original.
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
    mean: tuple[float, float, float] = (0.45, 0.45, 0.45)
    std: tuple[float, float, float] = (0.225, 0.225, 0.225)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise StillmotionError(f"size is {self.size}; a crop needs at least 1 pixel")
        if self.scale is None and self.short_side is not None and self.short_side < self.size:
            raise StillmotionError(f"short side {self.short_side} < crop size {self.size}; raise the short side")
        if self.blur_kernel_size is not None and self.blur_kernel_size % 2 == 0:
            raise StillmotionError(f"blur kernel is {self.blur_kernel_size}; give an odd number of taps")

    def __call__(self, clip: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
        return self.apply(clip, self.get_params(rng, 1, *clip.shape[1:3]))

    def crop_only(self, clip: np.ndarray, rng: np.random.Generator) -> tuple[torch.Tensor, np.ndarray]:
        """The crop alone, uint8 (3, T, size, size), and what `apply_on_device` needs to make of it what a call would have."""
        draw = self.get_params(rng, 1, *clip.shape[1:3])
        crop = np.ascontiguousarray(self._crop(clip, draw).transpose(3, 0, 1, 2))
        return torch.from_numpy(crop), draw.packed[0]

    def apply_on_device(self, clips: torch.Tensor, params: np.ndarray) -> torch.Tensor:
        """Crops (…, 3, T, size, size) on any device, with their changes, normalised; the rest of `crop_only`."""
        taps = self._kernel_size(self.blur_sigma[1])
        return apply_params(clips, torch.from_numpy(params), kernel_size=taps, mean=self.mean, std=self.std)

    def get_params(self, rng: np.random.Generator, n: int, height: int, width: int) -> AugmentParams:
        """Draws for n clips of frames of the given size."""
        height, width = short_side_size(height, width, self.short_side)
        if self.scale is None:
            box = center_crop_boxes(n, height, width, side=self.size if self.short_side else min(height, width))
        else:
            box = random_crop_boxes(rng, n, height, width, scale=self.scale, ratio=self.ratio)
        flip = rng.random(n) < self.flip_p
        brightness, contrast, saturation = (rng.uniform(max(0, 1 - j), 1 + j, n) for j in self.color_jitter[:3])
        angle = 2 * np.pi * rng.uniform(-self.color_jitter[3], self.color_jitter[3], n)
        still = rng.random(n) >= self.color_jitter_p
        for factor in (brightness, contrast, saturation):
            factor[still] = 1
        angle[still] = 0
        saturation[rng.random(n) < self.gray_p] = 0
        sigma = np.where(rng.random(n) < self.blur_p, rng.uniform(*self.blur_sigma, n), 0.0)
        matrix = color_matrices(brightness * contrast, saturation, angle)
        return AugmentParams(box, flip, matrix, brightness * (1 - contrast), sigma)

    def apply(self, clip: np.ndarray, params: AugmentParams) -> torch.Tensor:
        """What `params`, for one clip, makes of uint8 (T, H, W, 3)."""
        out, size = self._crop(clip, params), self.size
        matrix, offset = params.color_matrix[0], params.luma_offset[0]
        if offset != 0 or not np.allclose(matrix, np.eye(3)):
            luma = float(LUMA_WEIGHTS @ cv2.mean(out.reshape(-1, size, 3))[:3])
            affine = np.column_stack([matrix, np.full(3, offset * luma)]).astype(np.float32)
            out = cv2.transform(out.reshape(-1, size, 3), affine).reshape(out.shape)
        sigma = float(params.blur_sigma[0])
        if sigma > 0:
            taps = self._kernel_size(sigma)
            for frame in out:
                cv2.GaussianBlur(frame, (taps, taps), sigma, dst=frame, borderType=cv2.BORDER_REFLECT_101)
        return normalize_clip(out, self.mean, self.std)

    def _crop(self, clip: np.ndarray, params: AugmentParams) -> np.ndarray:
        """The crop that `params` takes of uint8 (T, H, W, 3), resized and mirrored: uint8 (T, size, size, 3)."""
        top, left, height, width = params.crop_box[0].tolist()
        size = self.size
        out: np.ndarray = np.empty((len(clip), size, size, 3), np.uint8)
        large = height >= 2 * size and width >= 2 * size
        for frame, target in zip(resize_short_side(clip, self.short_side), out, strict=True):
            crop = frame[top : top + height, left : left + width]
            cv2.resize(crop, (size, size), dst=target, interpolation=cv2.INTER_AREA if large else cv2.INTER_LINEAR)
            if params.flip[0]:
                cv2.flip(target, 1, dst=target)
        return out

    def _kernel_size(self, sigma: float) -> int:
        """Taps of the blur at this sigma: three sigmas to each side, within the frame."""
        taps = self.blur_kernel_size or 2 * int(np.ceil(3 * sigma)) + 1
        return min(taps, 2 * self.size - 1)


@dataclass(frozen=True)
class EvalCrop:
    """uint8 (T, H, W, 3) → (crops, 3, T, size, size): the centre, or three crops along the longer edge.

    whole_frame: all of a frame, whatever its shape, in place of a crop; width: its own, where it is no square.
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
            raise StillmotionError(f"{self.num_crops} crops asked for of frames that are shown entire; choose 1")
        if self.num_crops not in (1, 3):
            raise StillmotionError(f"{self.num_crops} crops asked for; choose 1 or 3")
        if self.short_side < self.size:
            raise StillmotionError(f"short side {self.short_side} < crop size {self.size}; raise the short side")

    def __call__(self, clip: np.ndarray) -> torch.Tensor:
        if self.whole_frame:
            how = cv2.INTER_AREA if min(clip.shape[1:3]) >= 2 * self.size else cv2.INTER_LINEAR
            shape = (self.frame_width or self.size, self.size)
            whole = np.stack([cv2.resize(frame, shape, interpolation=how) for frame in clip])
            return normalize_clip(whole, self.mean, self.std)[None]
        frames = np.stack(list(resize_short_side(clip, self.short_side)))
        top, left = (frames.shape[1] - self.size) // 2, (frames.shape[2] - self.size) // 2
        corners = [(top, left)]
        if self.num_crops == 3:
            # The longer edge is walked; the other stays centred.
            corners = [(part * top, left) if top > left else (top, part * left) for part in range(3)]
        views = [frames[:, y : y + self.size, x : x + self.size] for y, x in corners]
        return torch.stack([normalize_clip(view, self.mean, self.std) for view in views])


def resize_short_side(clip: np.ndarray, short_side: int | None) -> Iterable[np.ndarray]:
    """The frames with their shorter edge at `short_side`."""
    height, width = short_side_size(clip.shape[1], clip.shape[2], short_side)
    if (height, width) == clip.shape[1:3]:
        return clip
    how = cv2.INTER_AREA if clip.shape[1] >= 2 * height else cv2.INTER_LINEAR
    return [cv2.resize(frame, (width, height), interpolation=how) for frame in clip]


def normalize_clip(clip: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """uint8 (T, H, W, 3) → float32 (3, T, H, W), less the mean and over the standard deviation of values in [0, 1]."""
    frames = torch.from_numpy(np.ascontiguousarray(clip.transpose(3, 0, 1, 2))).float()
    scale = 1 / (255 * torch.tensor(std))
    shift = torch.tensor(mean) / torch.tensor(std)
    return frames.mul_(scale[:, None, None, None]).sub_(shift[:, None, None, None])


IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Presets at their papers' sizes; `augment` gives them at another.
AUGMENTATIONS: dict[str, ClipAugmentation] = {
    # Kinetics recipe of BOD-VCL and of SlowFast's contrastive models.
    "slowfast": ClipAugmentation(224),
    "vididi": ClipAugmentation(
        112,
        scale=(0.08, 1.0),
        color_jitter=(0.2, 0.2, 0.2, 0.05),
        gray_p=0.5,
        blur_kernel_size=3,
        short_side=150,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
    ),
    "weak": ClipAugmentation(112, scale=(0.5, 1.0), flip_p=0, color_jitter=(0.2, 0.2, 0.2, 0.05), gray_p=0, blur_p=0),
    # Crops, mirrored or not, and a light jitter of colours: what the demo's videos are seen in.
    "light": ClipAugmentation(32, scale=(0.6, 1.0), color_jitter=(0.2, 0.2, 0.2, 0.05), gray_p=0, blur_p=0),
    # Drawn videos bring their own nuisances: what is left is a small shift.
    "synthetic": ClipAugmentation(
        32, scale=(0.9, 1.0), ratio=(1.0, 1.0), flip_p=0, color_jitter_p=0, gray_p=0, blur_p=0
    ),
    # The centre square, resized.
    "none": ClipAugmentation(112, scale=None, flip_p=0, color_jitter_p=0, gray_p=0, blur_p=0),
}


def build_augmentation(name: str, *, size: int) -> ClipAugmentation:
    """The preset of this name at this crop size."""
    if name not in AUGMENTATIONS:
        raise StillmotionError(f"no augmentation {name!r}; choose one of {', '.join(AUGMENTATIONS)}")
    return replace(AUGMENTATIONS[name], size=size)


def pair_augmentation(
    size: int, *, scale: tuple[float, float], mean: Any, std: Any, flip_p: float = 0.0
) -> ClipAugmentation:
    """A random resized crop, mirrored with a probability, and nothing else; the same for all frames of a clip."""
    return ClipAugmentation(
        size, scale=scale, flip_p=flip_p, color_jitter_p=0, gray_p=0, blur_p=0, mean=tuple(mean), std=tuple(std)
    )
