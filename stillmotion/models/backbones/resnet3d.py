"""R3D-18, MC3-18 and R(2+1)D-18, and a small 3D ResNet for CPUs.

Tran et al., "A Closer Look at Spatiotemporal Convolutions for Action Recognition", CVPR 2018
(arXiv:1711.11248). Parameter names, shapes and the (2+1)D middle widths are torchvision's. Differences:
temporal strides are 1 unless `per_frame_features=False`, there is no classifier, and features are pooled over space
only.

Tables of contrastive papers give 13.5M parameters for "R3D-18" and 15.4M for "R(2+1)D-18". Tran et al.'s
networks, and these, have 33.2M and 31.3M: every 3×3 convolution of a 2D ResNet-18 (11.2M) becomes 3×3×3, or
a pair with as many parameters. docs/experiments.md explains the smaller figures.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.layers import Conv3d, conv_bn_relu, init_conv_weights

ConvKind = Literal["3d", "2d", "2+1d"]


class VideoResNet(Backbone):
    """An 18-layer video ResNet.

    Args:
        conv_kinds: Convolution of each of the four layers: "3d" (3×3×3), "2d" (1×3×3) or "2+1d" (1×3×3, 3×1×1).
        per_frame_features: Temporal stride 1 throughout; False restores stride 2 in layers 2 to 4 that are not "2d".
    """

    min_size = 16

    def __init__(self, conv_kinds: Sequence[ConvKind], *, per_frame_features: bool) -> None:
        super().__init__()
        self.stem = _stem(conv_kinds[0])
        widths = (64, 64, 128, 256, 512)
        layers = []
        for index, kind in enumerate(conv_kinds):
            spatial = 1 if index == 0 else 2
            temporal = 1 if per_frame_features or kind == "2d" else spatial
            inner, outer = widths[index : index + 2]
            layers.append(
                nn.Sequential(
                    BasicBlock(inner, outer, kind, stride=(temporal, spatial, spatial)),
                    BasicBlock(outer, outer, kind),
                )
            )
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.out_features = widths[-1]
        self.stage_prefixes = (("stem",), ("layer1",), ("layer2",), ("layer3",), ("layer4",))
        init_conv_weights(self)

    def _trunk(self, clips: Tensor) -> Tensor:
        return self.layer3(self.layer2(self.layer1(self.stem(clips))))

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.layer4(h)


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut, which is a strided 1×1×1 convolution if the shape changes."""

    def __init__(
        self, in_channels: int, out_channels: int, conv_kind: ConvKind, *, stride: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        super().__init__()
        # A (2+1)D pair has as many parameters as the 3×3×3 convolution; torchvision uses the same width for the second.
        middle = (in_channels * out_channels * 27) // (in_channels * 9 + out_channels * 3)
        self.conv1 = nn.Sequential(
            _convolution(conv_kind, in_channels, middle, out_channels, stride=stride),
            nn.BatchNorm3d(out_channels),
            nn.ReLU(inplace=True),
        )
        self.conv2 = nn.Sequential(
            _convolution(conv_kind, out_channels, middle, out_channels), nn.BatchNorm3d(out_channels)
        )
        self.downsample = (
            nn.Sequential(Conv3d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm3d(out_channels))
            if in_channels != out_channels
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.conv2(self.conv1(x)) + shortcut, inplace=True)


class SmallCNN3d(Backbone):
    """A light 3D CNN for clips of about 32×32 pixels: a strided 3×3×3 convolution, batch norm and ReLU per stage.

    Args:
        channels: Channels of each stage.
        num_blocks: Residual blocks after the convolution of each stage; 0 makes a plain CNN.
        per_frame_features: Temporal stride 1; False strides time like space, but for the first stage.
    """

    # On one CPU thread, training takes 1.3 to 1.6 times as long in the contiguous layout.
    memory_format = torch.channels_last_3d

    def __init__(self, channels: Sequence[int], *, num_blocks: int, per_frame_features: bool) -> None:
        super().__init__()
        inputs = (3, *channels[:-1])
        stages = []
        for index, (inner, outer) in enumerate(zip(inputs, channels, strict=True)):
            stride = (1 if per_frame_features or index == 0 else 2, 2, 2)
            stages.append(
                nn.Sequential(
                    *conv_bn_relu(inner, outer, (3, 3, 3), stride=stride),
                    *(BasicBlock(outer, outer, "3d") for _ in range(num_blocks)),
                )
            )
        self.layers = nn.ModuleList(stages)
        self.out_features = channels[-1]
        self.stage_prefixes = tuple((f"layers.{index}",) for index in range(len(channels)))
        self.min_size = 2 ** (len(channels) - 1)
        init_conv_weights(self)

    def _trunk(self, clips: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            clips = layer(clips)
        return clips

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.layers[-1](h)


def r3d_18(*, per_frame_features: bool = True) -> Backbone:
    """R3D-18: 3×3×3 convolutions throughout; argument as in `VideoResNet`."""
    return VideoResNet(("3d", "3d", "3d", "3d"), per_frame_features=per_frame_features)


def mc3_18(*, per_frame_features: bool = True) -> Backbone:
    """MC3-18: 3×3×3 convolutions in stem and first layer, 1×3×3 after; it has no temporal strides."""
    return VideoResNet(("3d", "2d", "2d", "2d"), per_frame_features=per_frame_features)


def r2plus1d_18(*, per_frame_features: bool = True) -> Backbone:
    """R(2+1)D-18: each 3×3×3 convolution is split into 1×3×3, batch norm, ReLU and 3×1×1."""
    return VideoResNet(("2+1d", "2+1d", "2+1d", "2+1d"), per_frame_features=per_frame_features)


def small_cnn3d(
    *, per_frame_features: bool = True, channels: Sequence[int] = (12, 24, 48, 96), num_blocks: int = 0
) -> Backbone:
    """Small 3D ResNet of the demo and of debug runs.

    Args:
        per_frame_features: As in `SmallCNN3d`.
        channels: As in `SmallCNN3d`.
        num_blocks: As in `SmallCNN3d`.

    Raises:
        StillmotionError: If an option is out of range.
    """
    if not channels or min(channels) < 1:
        raise StillmotionError(f"channels is {tuple(channels)}; must be one or more positive numbers.")
    if num_blocks < 0:
        raise StillmotionError(f"num_blocks is {num_blocks}; must be at least 0 (0 makes a plain CNN).")
    return SmallCNN3d(channels, num_blocks=num_blocks, per_frame_features=per_frame_features)


def _stem(conv_kind: ConvKind) -> nn.Sequential:
    if conv_kind == "2+1d":
        return nn.Sequential(
            *conv_bn_relu(3, 45, (1, 7, 7), stride=(1, 2, 2)),
            *conv_bn_relu(45, 64, (3, 1, 1)),
        )
    return conv_bn_relu(3, 64, (3, 7, 7), stride=(1, 2, 2))


def _convolution(
    conv_kind: ConvKind,
    in_channels: int,
    mid_channels: int,
    out_channels: int,
    *,
    stride: tuple[int, int, int] = (1, 1, 1),
) -> nn.Module:
    temporal, height, width = stride
    if conv_kind == "3d":
        return Conv3d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
    if conv_kind == "2d":
        return Conv3d(in_channels, out_channels, (1, 3, 3), stride=(1, height, width), padding=(0, 1, 1), bias=False)
    return nn.Sequential(
        *conv_bn_relu(in_channels, mid_channels, (1, 3, 3), stride=(1, height, width)),
        Conv3d(mid_channels, out_channels, (3, 1, 1), stride=(temporal, 1, 1), padding=(1, 0, 0), bias=False),
    )
