"""What an augmentation does to crops that are already cut, as tensor operations on any device: colour, blur, scale.

Crops travel there as uint8, a quarter of the bytes of floats, with the numbers of `Draw.changes`. What comes out is
what `Augment.apply` makes of the same draws, up to its rounding to uint8 after each step.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.transforms.parameters import LUMA_WEIGHTS

_CLIPS_PER_CHUNK = 16  # clips in float at a time, beside the result


def apply_params(
    clips: Tensor, params: Tensor, *, kernel_size: int, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Clips in other colours, blurred and normalised, float32 where they are.

    clips: uint8 (…, 3, T, H, W). changes: (…, 11) as `Draw.changes` has them, on the CPU: nothing waits for a device.
    kernel_size: of the blur, enough for the largest sigma that is drawn.
    """
    out = torch.empty(clips.shape, device=clips.device)
    shape = clips.shape[-4:]
    parts = (
        x.split(_CLIPS_PER_CHUNK) for x in (clips.reshape(-1, *shape), params.reshape(-1, 11), out.view(-1, *shape))
    )
    centre, spread = (out.new_tensor(values).view(3, 1, 1, 1) for values in (mean, std))
    for some, told, target in zip(*parts, strict=True):
        here = told.to(out.device, non_blocking=True)
        found = _apply_color(some.float() / 255, here[:, :9].view(-1, 3, 3), here[:, 9])
        soft = torch.nonzero(told[:, 10] > 0)[:, 0].to(out.device, non_blocking=True)
        if len(soft):
            found[soft] = _blur(found[soft], here[soft, 10], taps=kernel_size)
        target.copy_((found - centre) / spread)
    return out


def _apply_color(clips: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    mean = clips.mean((2, 3, 4)) @ clips.new_tensor(LUMA_WEIGHTS)
    mixed = torch.einsum("bij,bjthw->bithw", matrix, clips)
    return (mixed + (offset * mean).view(-1, 1, 1, 1, 1)).clamp(0, 1)


def _blur(clips: Tensor, sigma: Tensor, *, taps: int) -> Tensor:
    """A separable Gaussian of each clip's own sigma."""
    half = taps // 2
    at = torch.arange(-half, half + 1, device=clips.device, dtype=clips.dtype)
    kernel = torch.softmax(-0.5 * (at / sigma[:, None]) ** 2, dim=1)
    shape = clips.shape
    # Clips are groups of a convolution over (C·T) images.
    images = clips.flatten(1, 2).transpose(0, 1)
    images = F.pad(images, (half, half, half, half), mode="reflect")
    images = F.conv2d(images, kernel[:, None, :, None], groups=shape[0])
    images = F.conv2d(images, kernel[:, None, None, :], groups=shape[0])
    return images.transpose(0, 1).unflatten(1, shape[1:3])
