"""The color, blur and normalize steps of an augmentation as batched tensor operations on any device.

Crops are moved to the device as uint8, a quarter of the size of floats, with `AugmentParams.packed`. The result is that
of `ClipAugmentation.apply` for the same parameters, except that this one rounds to uint8 after each step.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from stillmotion.data.transforms.parameters import LUMA_WEIGHTS

_CLIPS_PER_CHUNK = 16  # limits the memory for float copies


def apply_params(
    clips: Tensor, params: Tensor, *, kernel_size: int, mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    """Apply color changes, blur and normalization to clips.

    Args:
        clips: Clips on any device, uint8 (…, 3, T, H, W).
        params: `AugmentParams.packed` (…, 11) on the CPU, so that nothing waits for the device.
        kernel_size: Size of the blur kernel, large enough for the largest sigma.
        mean: Mean of each channel, on the scale 0 to 1.
        std: Standard deviation of each channel.

    Returns:
        float32 (…, 3, T, H, W) on the device of the clips.
    """
    out = torch.empty(clips.shape, device=clips.device)
    shape = clips.shape[-4:]
    chunks = (
        x.split(_CLIPS_PER_CHUNK) for x in (clips.reshape(-1, *shape), params.reshape(-1, 11), out.view(-1, *shape))
    )
    means, stds = (out.new_tensor(values).view(3, 1, 1, 1) for values in (mean, std))
    for chunk, chunk_params, output in zip(*chunks, strict=True):
        on_device = chunk_params.to(out.device, non_blocking=True)
        colored = _apply_color(chunk.float() / 255, on_device[:, :9].view(-1, 3, 3), on_device[:, 9])
        blurred = torch.nonzero(chunk_params[:, 10] > 0)[:, 0].to(out.device, non_blocking=True)
        if len(blurred):
            colored[blurred] = _blur(colored[blurred], on_device[blurred, 10], kernel_size)
        output.copy_((colored - means) / stds)
    return out


def _apply_color(clips: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    mean = clips.mean((2, 3, 4)) @ clips.new_tensor(LUMA_WEIGHTS)
    mixed = torch.einsum("bij,bjthw->bithw", matrix, clips)
    return (mixed + (offset * mean).view(-1, 1, 1, 1, 1)).clamp(0, 1)


def _blur(clips: Tensor, sigma: Tensor, kernel_size: int) -> Tensor:
    """Separable Gaussian blur with one sigma per clip."""
    radius = kernel_size // 2
    offsets = torch.arange(-radius, radius + 1, device=clips.device, dtype=clips.dtype)
    kernel = torch.softmax(-0.5 * (offsets / sigma[:, None]) ** 2, dim=1)
    shape = clips.shape
    # Clips are groups of a convolution over (C·T) images.
    images = clips.flatten(1, 2).transpose(0, 1)
    images = F.pad(images, (radius, radius, radius, radius), mode="reflect")
    images = F.conv2d(images, kernel[:, None, :, None], groups=shape[0])
    images = F.conv2d(images, kernel[:, None, None, :], groups=shape[0])
    return images.transpose(0, 1).unflatten(1, shape[1:3])
