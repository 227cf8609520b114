"""Slow-R50: the Slow pathway of SlowFast, used alone.

Feichtenhofer et al., "SlowFast Networks for Video Recognition", ICCV 2019 (arXiv:1812.03982), the "Slow
8×8, R50" of its model zoo: temporal kernels of 1 in stem, res2 and res3, and of 3 in the first convolution
of each block of res4 and res5; the last batch norm of each block starts at zero. Parameter names are
SlowFast's. Differences: there is no classifier, and features are pooled over space only. There are
no temporal strides, so `per_frame_features` changes nothing.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.layers import Conv3d, MaxPool3d, init_conv_weights

_DEPTHS = (3, 4, 6, 3)
_TEMPORAL_KERNELS = (1, 1, 3, 3)


class SlowR50(Backbone):
    """SlowFast's `ResNet` with `ARCH: slow` and depth 50."""

    min_size = 32
    out_features = 2048
    stage_prefixes = (("s1",), ("s2",), ("s3",), ("s4",), ("s5",))

    def __init__(self) -> None:
        super().__init__()
        # SlowFast names the modules of each pathway within a stage; here there is one pathway.
        self.s1 = nn.Sequential()
        self.s1.add_module("pathway0_stem", Stem())
        inner, stages = 64, []
        for index, (depth, kernel) in enumerate(zip(_DEPTHS, _TEMPORAL_KERNELS, strict=True)):
            outer = 256 * 2**index
            stage = nn.Sequential()
            stages.append(stage)
            for block in range(depth):
                stride = 2 if index and block == 0 else 1
                stage.add_module(f"pathway0_res{block}", ResBlock(inner, outer, kernel_size=kernel, stride=stride))
                inner = outer
        self.s2, self.s3, self.s4, self.s5 = stages
        init_conv_weights(self)
        for part in self.modules():
            if isinstance(part, Bottleneck):
                nn.init.zeros_(part.c_bn.weight)

    def _trunk(self, clips: Tensor) -> Tensor:
        return self.s4(self.s3(self.s2(self.s1(clips))))

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.s5(h)


class Stem(nn.Module):
    """1×7×7 convolution of stride 2 and 1×3×3 max pooling of stride 2."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = Conv3d(3, 64, (1, 7, 7), stride=(1, 2, 2), padding=(0, 3, 3), bias=False)
        self.bn = nn.BatchNorm3d(64)
        self.pool_layer = MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.pool_layer(F.relu(self.bn(self.conv(x)), inplace=True))


class Bottleneck(nn.Module):
    """kernel_size×1×1, 1×3×3 and 1×1×1 convolutions; the second has the stride and a quarter of the channels."""

    def __init__(self, in_channels: int, out_channels: int, *, kernel_size: int, stride: int) -> None:
        super().__init__()
        middle = out_channels // 4
        self.a = Conv3d(in_channels, middle, (kernel_size, 1, 1), padding=(kernel_size // 2, 0, 0), bias=False)
        self.a_bn = nn.BatchNorm3d(middle)
        self.b = Conv3d(middle, middle, (1, 3, 3), stride=(1, stride, stride), padding=(0, 1, 1), bias=False)
        self.b_bn = nn.BatchNorm3d(middle)
        self.c = Conv3d(middle, out_channels, 1, bias=False)
        self.c_bn = nn.BatchNorm3d(out_channels)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.a_bn(self.a(x)), inplace=True)
        x = F.relu(self.b_bn(self.b(x)), inplace=True)
        return self.c_bn(self.c(x))


class ResBlock(nn.Module):
    """A bottleneck and a shortcut, which is a 1×1×1 convolution in the first block of a stage."""

    def __init__(self, in_channels: int, out_channels: int, *, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.has_projection = in_channels != out_channels
        if self.has_projection:
            self.branch1 = Conv3d(in_channels, out_channels, 1, stride=(1, stride, stride), bias=False)
            self.branch1_bn = nn.BatchNorm3d(out_channels)
        self.branch2 = Bottleneck(in_channels, out_channels, kernel_size=kernel_size, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.branch1_bn(self.branch1(x)) if self.has_projection else x
        return F.relu(shortcut + self.branch2(x), inplace=True)


def slow_r50(*, per_frame_features: bool = True) -> Backbone:
    """Slow-R50, the default of BOD-VCL; it has no temporal strides, whatever `per_frame_features` is."""
    return SlowR50()
