"""I3D (RGB): the Inception network of images, inflated to video.

Carreira and Zisserman, "Quo Vadis, Action Recognition?", CVPR 2017 (arXiv:1705.07750). Parameter names and shapes are
those of the common PyTorch conversion, `InceptionI3d`, and so are padding (TensorFlow's "same": the odd pixel goes
last) and batch norm's epsilon. Public weights expect clips in [-1, 1]. Differences: temporal strides are 1 unless
`per_frame_features=False`, and the last pooling then has temporal kernel 1, since an even kernel without stride would
shift time; batch norm's momentum is PyTorch's 0.1; the classifier is optional (`num_classes`).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stillmotion.errors import StillmotionError
from stillmotion.models.backbones.base import Backbone
from stillmotion.models.backbones.layers import Conv3d, TemporalPadding, init_conv_weights, replicate_pad_time
from stillmotion.models.backbones.s3d import MIXED_3, MIXED_4, MIXED_5, InceptionChannels
from stillmotion.models.input_config import DEFAULT_IMAGE_SIZE, InputConfig, Normalization

Triple = tuple[int, int, int]


class I3D(Backbone):
    """I3D, with an optional classifier.

    Args:
        per_frame_features: Temporal stride 1 throughout; False restores stride 2 in the stem and two poolings.
        num_classes: Classes of the classifier; 0 for none.
    """

    min_size = 32
    out_features = 1024
    stage_prefixes = (
        ("Conv3d_1a_7x7",),
        ("Conv3d_2b_1x1", "Conv3d_2c_3x3"),
        ("Mixed_3b", "Mixed_3c"),
        ("Mixed_4b", "Mixed_4c", "Mixed_4d", "Mixed_4e", "Mixed_4f"),
        ("Mixed_5b", "Mixed_5c", "logits"),
    )

    def __init__(self, *, per_frame_features: bool, num_classes: int = 0) -> None:
        super().__init__()
        if num_classes < 0:
            raise StillmotionError(f"num_classes is {num_classes}; must be at least 0 (0 for no classifier).")
        time = 1 if per_frame_features else 2
        self.min_frames = time**3
        self.Conv3d_1a_7x7 = ConvBNReLU(3, 64, kernel_size=(7, 7, 7), stride=(time, 2, 2))
        self.pool2 = SamePadMaxPool3d((1, 3, 3), (1, 2, 2))
        self.Conv3d_2b_1x1 = ConvBNReLU(64, 64)
        self.Conv3d_2c_3x3 = ConvBNReLU(64, 192, kernel_size=(3, 3, 3))
        self.pool3 = SamePadMaxPool3d((1, 3, 3), (1, 2, 2))
        self.Mixed_3b, self.Mixed_3c = _inceptions(192, MIXED_3)
        self.pool4 = SamePadMaxPool3d((3, 3, 3), (time, 2, 2))
        blocks = _inceptions(MIXED_3[-1].total, MIXED_4)
        self.Mixed_4b, self.Mixed_4c, self.Mixed_4d, self.Mixed_4e, self.Mixed_4f = blocks
        self.pool5 = SamePadMaxPool3d((time, 2, 2), (time, 2, 2))
        self.Mixed_5b, self.Mixed_5c = _inceptions(MIXED_4[-1].total, MIXED_5)
        if num_classes:
            self.logits = ConvClassifier(self.out_features, num_classes)
        init_conv_weights(self)

    def forward_logits(self, clips: Tensor) -> Tensor:
        """Compute class scores (B, num_classes) before softmax: of pairs of time steps, averaged, as published."""
        if not hasattr(self, "logits"):
            raise StillmotionError("This I3D has no classifier. Create it with num_classes=400 to use the public one.")
        pooled = self(clips)
        pairs = (pooled[:, :-1] + pooled[:, 1:]) / 2 if pooled.shape[1] > 1 else pooled
        return self.logits(pairs.mean(1))

    def _trunk(self, clips: Tensor) -> Tensor:
        h = self.pool2(self.Conv3d_1a_7x7(clips))
        h = self.pool3(self.Conv3d_2c_3x3(self.Conv3d_2b_1x1(h)))
        h = self.pool4(self.Mixed_3c(self.Mixed_3b(h)))
        for block in (self.Mixed_4b, self.Mixed_4c, self.Mixed_4d, self.Mixed_4e, self.Mixed_4f):
            h = block(h)
        return h

    def _last_stage(self, h: Tensor) -> Tensor:
        return self.Mixed_5c(self.Mixed_5b(self.pool5(h)))


class Inception(nn.Module):
    """Four parallel branches: 1×1×1; twice 1×1×1 then 3×3×3; max pooling then 1×1×1."""

    def __init__(self, in_channels: int, channels: InceptionChannels) -> None:
        super().__init__()
        self.b0 = ConvBNReLU(in_channels, channels.b0)
        self.b1a = ConvBNReLU(in_channels, channels.b1_reduce)
        self.b1b = ConvBNReLU(channels.b1_reduce, channels.b1, kernel_size=(3, 3, 3))
        self.b2a = ConvBNReLU(in_channels, channels.b2_reduce)
        self.b2b = ConvBNReLU(channels.b2_reduce, channels.b2, kernel_size=(3, 3, 3))
        self.b3a = SamePadMaxPool3d((3, 3, 3), (1, 1, 1))
        self.b3b = ConvBNReLU(in_channels, channels.b3)

    def forward(self, x: Tensor) -> Tensor:
        branches = (self.b0(x), self.b1b(self.b1a(x)), self.b2b(self.b2a(x)), self.b3b(self.b3a(x)))
        return torch.cat(branches, 1)


class ConvBNReLU(nn.Module):
    """Convolution, batch norm and ReLU."""

    def __init__(
        self, in_channels: int, out_channels: int, *, kernel_size: Triple = (1, 1, 1), stride: Triple = (1, 1, 1)
    ) -> None:
        super().__init__()
        self.conv3d = SamePadConv3d(in_channels, out_channels, kernel_size, stride=stride, bias=False)
        self.bn = nn.BatchNorm3d(out_channels, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv3d(x)), inplace=True)


class ConvClassifier(nn.Module):
    """Linear layer with the parameters of a 1×1×1 convolution, as in public weights."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.conv3d = nn.Conv3d(in_channels, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.conv3d.weight.flatten(1), self.conv3d.bias)


class SamePadConv3d(Conv3d):
    """Convolution with "same" padding: its output has size ⌈size / stride⌉."""

    def forward(self, x: Tensor) -> Tensor:
        kernel = (1 if self.framewise else self.kernel_size[0], *self.kernel_size[1:])
        return super().forward(_same_pad(x, kernel, self.stride, temporal_padding=self.temporal_padding))


class SamePadMaxPool3d(nn.Module):
    """Max pooling with "same" padding by zeros, which are minimal after a ReLU; in framewise mode not over time."""

    framewise: bool = False

    def __init__(self, kernel_size: Triple, stride: Triple) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size, self.stride
        if self.framewise:
            kernel, stride = (1, *kernel[1:]), (1, *stride[1:])
        return F.max_pool3d(_same_pad(x, kernel, stride), kernel, stride)


def i3d(*, per_frame_features: bool = True, num_classes: int = 0) -> Backbone:
    """I3D on RGB.

    Args:
        per_frame_features: As in `I3D`.
        num_classes: As in `I3D`.
    """
    return I3D(per_frame_features=per_frame_features, num_classes=num_classes)


def _inceptions(in_channels: int, blocks: tuple[InceptionChannels, ...]) -> list[Inception]:
    inputs = (in_channels, *(widths.total for widths in blocks[:-1]))
    return [Inception(width, widths) for width, widths in zip(inputs, blocks, strict=True)]


def _same_pad(
    x: Tensor, kernel_size: tuple[int, ...], stride: tuple[int, ...], *, temporal_padding: TemporalPadding = "zeros"
) -> Tensor:
    """TensorFlow's "same" padding, one more at the end if odd: zeros in space, `temporal_padding` in time."""
    time, height, width = (_pad_amounts(*axis) for axis in zip(x.shape[2:], kernel_size, stride, strict=True))
    if temporal_padding == "replicate":
        x, time = replicate_pad_time(x, *time), (0, 0)
    pads = (*width, *height, *time)
    return F.pad(x, pads) if any(pads) else x


def _pad_amounts(size: int, kernel_size: int, stride: int) -> tuple[int, int]:
    """Padding before and after an axis of length `size`."""
    total = max(kernel_size - (size % stride or stride), 0)
    return total // 2, total - total // 2


I3D_INPUT_CONFIG = InputConfig(
    64, 1, DEFAULT_IMAGE_SIZE, Normalization((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
)  # values in [-1, 1]
