"""S3D and S3D-G: inception blocks with separable space-time convolutions.

Xie et al., "Rethinking Spatiotemporal Feature Learning", ECCV 2018 (arXiv:1712.04851). Parameter names and
shapes of S3D are torchvision's; S3D-G adds, to each branch of each inception block, the gate `gating_b0` …
`gating_b3` (the placement, and the names, of CoCLR's public S3D-G, which gives the papers' 9.1M
parameters). Differences: temporal strides are 1 unless `per_frame_features=False`, and the last pooling then has
temporal kernel 1, since an even kernel without stride would shift time; batch norm's momentum is PyTorch's
0.1, not 0.001, whose averages take thousands of steps to warm up (its epsilon is the original 0.001);
there is no classifier.
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.layers import FeatureGate, MaxPool3d, conv_bn_relu, init_conv_weights


class InceptionChannels(NamedTuple):
    """Channels of the branches of an inception block; two of them have a reduction first."""

    b0: int
    b1_reduce: int
    b1: int
    b2_reduce: int
    b2: int
    b3: int

    @property
    def total(self) -> int:
        return self.b0 + self.b1 + self.b2 + self.b3


# Inception blocks of both S3D and I3D.
MIXED_3 = (InceptionChannels(64, 96, 128, 16, 32, 32), InceptionChannels(128, 128, 192, 32, 96, 64))
MIXED_4 = (
    InceptionChannels(192, 96, 208, 16, 48, 64),
    InceptionChannels(160, 112, 224, 24, 64, 64),
    InceptionChannels(128, 128, 256, 24, 64, 64),
    InceptionChannels(112, 144, 288, 32, 64, 64),
    InceptionChannels(256, 160, 320, 32, 128, 128),
)
MIXED_5 = (InceptionChannels(256, 160, 320, 32, 128, 128), InceptionChannels(384, 192, 384, 48, 128, 128))
_LAST_STAGE_START = 13
_conv_bn_relu = partial(conv_bn_relu, eps=1e-3)


class S3D(Backbone):
    """S3D without its classifier.

    Args:
        gated: Add feature gating (S3D-G).
        per_frame_features: Temporal stride 1 throughout; False restores stride 2 in the stem and two poolings.
    """

    min_size = 32
    out_features = 1024
    stage_prefixes = (
        ("features.0",),
        ("features.2", "features.3"),
        ("features.5", "features.6"),
        tuple(f"features.{index}" for index in range(8, 13)),
        ("features.14", "features.15"),
    )

    def __init__(self, *, gated: bool, per_frame_features: bool) -> None:
        super().__init__()
        time = 1 if per_frame_features else 2
        self.min_frames = time**3
        self.features = nn.Sequential(
            _separable_conv(3, 64, kernel_size=7, stride=(time, 2, 2)),
            MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
            _conv_bn_relu(64, 64),
            _separable_conv(64, 192, kernel_size=3),
            MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
            *_inceptions(192, MIXED_3, gated=gated),
            MaxPool3d((3, 3, 3), stride=(time, 2, 2), padding=(1, 1, 1)),
            *_inceptions(MIXED_3[-1].total, MIXED_4, gated=gated),
            MaxPool3d((time, 2, 2), stride=(time, 2, 2)),
            *_inceptions(MIXED_4[-1].total, MIXED_5, gated=gated),
        )
        init_conv_weights(self)

    def _trunk(self, clips: Tensor) -> Tensor:
        return self.features[:_LAST_STAGE_START](clips)

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.features[_LAST_STAGE_START:](h)


class SeparableInception(nn.Module):
    """Four parallel branches: 1×1×1, two separable 3×3×3, and a max pooling; each is gated in S3D-G."""

    def __init__(self, in_channels: int, channels: InceptionChannels, *, gated: bool) -> None:
        super().__init__()
        self.branch0 = _conv_bn_relu(in_channels, channels.b0)
        self.branch1 = nn.Sequential(
            _conv_bn_relu(in_channels, channels.b1_reduce),
            _separable_conv(channels.b1_reduce, channels.b1, kernel_size=3),
        )
        self.branch2 = nn.Sequential(
            _conv_bn_relu(in_channels, channels.b2_reduce),
            _separable_conv(channels.b2_reduce, channels.b2, kernel_size=3),
        )
        self.branch3 = nn.Sequential(
            MaxPool3d((3, 3, 3), stride=(1, 1, 1), padding=(1, 1, 1)), _conv_bn_relu(in_channels, channels.b3)
        )
        self.gating_b0: nn.Module = FeatureGate(channels.b0) if gated else nn.Identity()
        self.gating_b1: nn.Module = FeatureGate(channels.b1) if gated else nn.Identity()
        self.gating_b2: nn.Module = FeatureGate(channels.b2) if gated else nn.Identity()
        self.gating_b3: nn.Module = FeatureGate(channels.b3) if gated else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        branches = (
            self.gating_b0(self.branch0(x)),
            self.gating_b1(self.branch1(x)),
            self.gating_b2(self.branch2(x)),
            self.gating_b3(self.branch3(x)),
        )
        return torch.cat(branches, 1)


def s3d(*, per_frame_features: bool = True) -> Backbone:
    """S3D: separable inception blocks."""
    return S3D(gated=False, per_frame_features=per_frame_features)


def s3d_g(*, per_frame_features: bool = True) -> Backbone:
    """S3D-G: S3D with feature gating."""
    return S3D(gated=True, per_frame_features=per_frame_features)


def _inceptions(in_channels: int, blocks: tuple[InceptionChannels, ...], *, gated: bool) -> list[SeparableInception]:
    inputs = (in_channels, *(widths.total for widths in blocks[:-1]))
    return [SeparableInception(width, widths, gated=gated) for width, widths in zip(inputs, blocks, strict=True)]


def _separable_conv(
    in_channels: int, out_channels: int, *, kernel_size: int, stride: tuple[int, int, int] = (1, 1, 1)
) -> nn.Sequential:
    time, height, width = stride
    return nn.Sequential(
        _conv_bn_relu(in_channels, out_channels, (1, kernel_size, kernel_size), stride=(1, height, width)),
        _conv_bn_relu(out_channels, out_channels, (kernel_size, 1, 1), stride=(time, 1, 1)),
    )
