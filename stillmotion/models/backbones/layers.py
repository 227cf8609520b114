"""The layers in which a network looks across time, each of which can be told not to, and what they see beyond its ends.

"Strict" is the ablation of BOD-VCL, Table 10: of every temporal kernel only the centre slice is used, and
temporal pooling has kernel and stride 1, so that a 3D network is applied frame by frame. The switch acts
inside `forward` and leaves parameters alone: it works under `torch.func.functional_call`, and the gradient
of the unused slices is zero.

Borders in time are replicated or zero. Zeros, which networks are usually trained with, make the features of the first
and last frames differ from the others' whatever the video shows; where the first and last frame are repeated instead,
equal frames have equal features. Max pooling needs nothing: its window holds the frame that would be repeated.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stillmotion.errors import StillmotionError

TemporalPadding = Literal["replicate", "zeros"]


def set_temporal_padding(module: nn.Module, temporal_padding: TemporalPadding) -> None:
    """Choose what the layers of `module` see before the first frame and after the last: these again, or zeros."""
    if temporal_padding not in get_args(TemporalPadding):
        raise StillmotionError(
            f"temporal_padding is {temporal_padding!r}; choose one of {', '.join(get_args(TemporalPadding))}"
        )
    for part in module.modules():
        if hasattr(type(part), "temporal_padding"):
            setattr(part, "temporal_padding", temporal_padding)


@contextmanager
def framewise_mode(module: nn.Module) -> Iterator[None]:
    """Within the context, no layer of `module` lets a frame see another.

    Batch norm in training mode still takes its statistics over all frames, as it does over all clips.
    """
    with _set_flag(module, "framewise"):
        yield


@contextmanager
def double_backward_mode(module: nn.Module) -> Iterator[None]:
    """Within the context, the graphs that `module` records can be differentiated twice.

    Convolutional networks always can; attention leaves its fused kernels, which have no second derivative.
    """
    with _set_flag(module, "double_backward"):
        yield


@contextmanager
def _set_flag(module: nn.Module, flag: str) -> Iterator[None]:
    before = [(part, getattr(part, flag)) for part in module.modules() if hasattr(type(part), flag)]
    for part, _ in before:
        setattr(part, flag, True)
    try:
        yield
    finally:
        for part, value in before:
            setattr(part, flag, value)


class Conv3d(nn.Conv3d):
    """A 3D convolution with either border in time and zeros around space; strict, it uses its kernel's centre slice."""

    framewise: bool = False
    temporal_padding: TemporalPadding = "zeros"

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel_size[0] == 1:
            return super().forward(x)
        assert not isinstance(self.padding, str)
        weight, (time, height, width) = self.weight, self.padding
        if self.framewise:
            weight, time = weight[:, :, self.kernel_size[0] // 2].unsqueeze(2), 0
        elif self.temporal_padding == "replicate":
            x, time = replicate_pad_time(x, time, time), 0
        return F.conv3d(x, weight, self.bias, self.stride, (time, height, width), self.dilation, self.groups)


class MaxPool3d(nn.Module):
    """Max pooling over (time, height, width), over height and width alone when strict."""

    framewise: bool = False

    def __init__(
        self,
        kernel_size: tuple[int, int, int],
        *,
        stride: tuple[int, int, int],
        padding: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        if not self.framewise:
            return F.max_pool3d(x, self.kernel_size, self.stride, self.padding)
        return F.max_pool3d(x, (1, *self.kernel_size[1:]), (1, *self.stride[1:]), (0, *self.padding[1:]))


class FeatureGate(nn.Module):
    """Channels scaled by a sigmoid of their mean over space and time (S3D-G); per frame when strict."""

    framewise: bool = False

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((3, 4), keepdim=True) if self.framewise else x.mean((2, 3, 4), keepdim=True)
        gate = torch.sigmoid(self.fc(mean.movedim(1, -1))).movedim(-1, 1)
        return x * gate


def replicate_pad_time(x: Tensor, before: int, after: int) -> Tensor:
    """x (B, C, T, H, W) with its first frame repeated so many times before it and its last one after it."""
    if not before and not after:
        return x
    if x.shape[2] == 1:
        return x.expand(-1, -1, before + 1 + after, -1, -1)
    # Parts of one split: their gradients are joined in one pass. F.pad takes up to twice as long, slices more.
    first, between, last = x.split((1, x.shape[2] - 2, 1), 2)
    return torch.cat((*[first] * (before + 1), between, *[last] * (after + 1)), 2)


def init_conv_weights(module: nn.Module) -> None:
    """Give every convolution He et al.'s normal weights (fan out) and a zero bias."""
    for part in module.modules():
        if isinstance(part, nn.Conv3d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
