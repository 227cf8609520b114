"""3D layers with temporal padding and a framewise mode.

The framewise mode is the ablation of BOD-VCL, Table 10: only the center slice of each temporal kernel is used, and
temporal pooling has kernel and stride 1, so that a 3D network is applied frame by frame. The switch acts inside
`forward` and does not change parameters: it works under `torch.func.functional_call`, and the gradient of the unused
slices is zero.

Temporal padding is replicated or zero. Zeros, with which networks are usually trained, make the features of the first
and last frames differ from the others in any video; with the first and last frame repeated instead, equal frames have
equal features. Max pooling needs no padding: its window holds the frame that would be repeated.
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
    """Set the temporal padding of all layers of a module.

    Args:
        module: Module, which is changed in place.
        temporal_padding: "replicate" repeats the first and last frame; "zeros" pads with zeros.

    Raises:
        StillmotionError: If the padding is unknown.
    """
    if temporal_padding not in get_args(TemporalPadding):
        raise StillmotionError(
            f"temporal_padding is {temporal_padding!r}; must be {' or '.join(get_args(TemporalPadding))}."
        )
    flag = "temporal_padding"
    for layer in module.modules():
        if hasattr(type(layer), flag):
            setattr(layer, flag, temporal_padding)


@contextmanager
def framewise_mode(module: nn.Module) -> Iterator[None]:
    """Context manager: disable all temporal mixing (BOD-VCL, Table 10).

    Batch norm in training mode still computes its statistics over all frames, as it does over all clips.
    """
    with _set_flag(module, "framewise"):
        yield


@contextmanager
def double_backward_mode(module: nn.Module) -> Iterator[None]:
    """Context manager: use attention kernels that support double backward.

    Convolutional networks always support it; the fused kernels of attention do not.
    """
    with _set_flag(module, "double_backward"):
        yield


@contextmanager
def _set_flag(module: nn.Module, flag: str) -> Iterator[None]:
    before = [(layer, getattr(layer, flag)) for layer in module.modules() if hasattr(type(layer), flag)]
    for layer, _ in before:
        setattr(layer, flag, True)
    try:
        yield
    finally:
        for layer, value in before:
            setattr(layer, flag, value)


class Conv3d(nn.Conv3d):
    """3D convolution with replicated or zero temporal padding; in framewise mode it uses its center slice only."""

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
    """Max pooling over (time, height, width); in framewise mode over height and width only."""

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
    """Scales channels by a sigmoid of their mean over space and time (S3D-G); in framewise mode per frame."""

    framewise: bool = False

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((3, 4), keepdim=True) if self.framewise else x.mean((2, 3, 4), keepdim=True)
        gate = torch.sigmoid(self.fc(mean.movedim(1, -1))).movedim(-1, 1)
        return x * gate


def replicate_pad_time(x: Tensor, before: int, after: int) -> Tensor:
    """Pad a tensor in time by repeating its first and last frame.

    Args:
        x: Tensor, (B, C, T, H, W).
        before: Frames to add before the first.
        after: Frames to add after the last.

    Returns:
        Tensor, (B, C, before + T + after, H, W).
    """
    if not before and not after:
        return x
    if x.shape[2] == 1:
        return x.expand(-1, -1, before + 1 + after, -1, -1)
    # The gradients of one split are joined in one pass; F.pad takes up to twice as long, and slices longer.
    first, between, last = x.split((1, x.shape[2] - 2, 1), 2)
    return torch.cat((*[first] * (before + 1), between, *[last] * (after + 1)), 2)


def conv_bn_relu(
    in_channels: int,
    out_channels: int,
    kernel_size: tuple[int, int, int] = (1, 1, 1),
    *,
    stride: tuple[int, int, int] = (1, 1, 1),
    eps: float = 1e-5,
) -> nn.Sequential:
    """Build a convolution that keeps the size (at stride 1), batch norm and ReLU.

    Args:
        in_channels: Input channels.
        out_channels: Output channels.
        kernel_size: Odd sizes (time, height, width).
        stride: Strides (time, height, width).
        eps: Epsilon of the batch norm.
    """
    padding = (kernel_size[0] // 2, kernel_size[1] // 2, kernel_size[2] // 2)
    return nn.Sequential(
        Conv3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=False),
        nn.BatchNorm3d(out_channels, eps=eps),
        nn.ReLU(inplace=True),
    )


def init_conv_weights(module: nn.Module) -> None:
    """Initialize all convolutions with He normal weights (fan out) and zero biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv3d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
