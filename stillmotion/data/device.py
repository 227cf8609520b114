"""The augmentations of `augment.py` as tensor operations on any device, over a whole batch at once.

They agree to the rounding of uint8 where crops shrink by less than two; resizing is bilinear at any factor here.
B clips, T frames of H×W, C = 3 colours; S is the size of the output.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from stillmotion.data.draws import LUMA, Draw, shrunk


def apply_on_device(
    batch: torch.Tensor,
    draw: Draw,
    *,
    size: int,
    short_side: int | None,
    taps: int,
    mean: Sequence[float],
    std: Sequence[float],
) -> torch.Tensor:
    """What `draw` makes of (B, 3, T, H, W): float32 (B, 3, T, size, size), normalised.

    batch: uint8, or float in [0, 1]. taps: of the blur, enough for the largest sigma that is drawn.
    """
    clips = batch.float() / 255 if batch.dtype == torch.uint8 else batch.float()

    def here(values: Any) -> torch.Tensor:
        return torch.as_tensor(values, device=clips.device, dtype=torch.float32)

    clips = _crop(_resize_short(clips, short_side), here(draw.box), here(draw.flip) > 0, size=size)
    clips = _colour(clips, here(draw.matrix), here(draw.offset))
    if (draw.sigma > 0).any():
        clips = _blur(clips, here(draw.sigma), taps=taps)
    centre, spread = here(mean), here(std)
    return (clips - centre.view(3, 1, 1, 1)) / spread.view(3, 1, 1, 1)


def _resize_short(clips: torch.Tensor, short_side: int | None) -> torch.Tensor:
    size = shrunk(clips.shape[-2], clips.shape[-1], short_side)
    if size == tuple(clips.shape[-2:]):
        return clips
    frames = F.interpolate(clips.flatten(1, 2), size=size, mode="bilinear", align_corners=False)
    return frames.unflatten(1, clips.shape[1:3])


def _crop(clips: torch.Tensor, box: torch.Tensor, flip: torch.Tensor, *, size: int) -> torch.Tensor:
    """Each clip's box, mirrored where flip says so, at size×size."""
    height, width = clips.shape[-2:]
    top, left, tall, wide = box[:, :, None].unbind(1)
    steps = (torch.arange(size, device=clips.device) + 0.5) / size
    # Sampling stays within the box: a pixel next to it must not bleed in.
    y = torch.minimum(torch.maximum(top + steps * tall, top + 0.5), top + tall - 0.5) * 2 / height - 1
    x = torch.where(flip[:, None], 1 - steps, steps) * wide + left
    x = torch.minimum(torch.maximum(x, left + 0.5), left + wide - 0.5) * 2 / width - 1
    grid = torch.stack([x[:, None, :].expand(-1, size, -1), y[:, :, None].expand(-1, -1, size)], dim=-1)
    # Time rides along as channels, so that one grid serves all frames of a clip.
    cropped = F.grid_sample(clips.flatten(1, 2), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return cropped.unflatten(1, clips.shape[1:3])


def _colour(clips: torch.Tensor, matrix: torch.Tensor, offset: torch.Tensor) -> torch.Tensor:
    luma = torch.as_tensor(LUMA, device=clips.device, dtype=clips.dtype)
    mean = clips.mean((2, 3, 4)) @ luma
    mixed = torch.einsum("bij,bjthw->bithw", matrix, clips)
    return (mixed + (offset * mean).view(-1, 1, 1, 1, 1)).clamp(0, 1)


def _blur(clips: torch.Tensor, sigma: torch.Tensor, *, taps: int) -> torch.Tensor:
    """A separable Gaussian of each clip's own sigma; a sigma of 0 leaves the clip as it is."""
    half = taps // 2
    at = torch.arange(-half, half + 1, device=clips.device, dtype=clips.dtype)
    # A tiny sigma stands for none: the kernel is then 1 in the middle.
    kernel = torch.softmax(-0.5 * (at / sigma.clamp(min=1e-3)[:, None]) ** 2, dim=1)
    shape = clips.shape
    # Clips are groups of a convolution over (C·T) images.
    images = clips.flatten(1, 2).transpose(0, 1)
    images = F.pad(images, (half, half, half, half), mode="reflect")
    images = F.conv2d(images, kernel[:, None, :, None], groups=shape[0])
    images = F.conv2d(images, kernel[:, None, None, :], groups=shape[0])
    return images.transpose(0, 1).unflatten(1, shape[1:3])
