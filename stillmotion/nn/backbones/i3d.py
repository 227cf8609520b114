"""I3D: the Inception network of images, inflated to video (RGB stream).

Carreira and Zisserman, "Quo Vadis, Action Recognition?", CVPR 2017 (arXiv:1705.07750). Parameter names and shapes are
those of the common PyTorch conversion, `InceptionI3d`, and so are padding (TensorFlow's "same": the odd pixel goes
last) and batch norm's epsilon. Public weights expect clips in [-1, 1]. What differs: temporal strides are 1 unless
`keep_time=False`, and the last pooling then has temporal kernel 1, since an even kernel without stride would shift
time; batch norm's momentum is PyTorch's 0.1; the classifier is there only where `classes` asks for it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stillmotion.errors import StillmotionError
from stillmotion.nn.backbones.base import Backbone
from stillmotion.nn.backbones.layers import Border, Conv3d, initialise_convolutions, replicated
from stillmotion.nn.backbones.s3d import MIXED_3, MIXED_4, MIXED_5, Widths

Triple = tuple[int, int, int]


class I3D(Backbone):
    """The feature part of I3D, with a classifier on top if there are `classes`.

    keep_time: temporal stride 1 throughout; False restores stride 2 in the stem and two poolings.
    """

    least_size = 32
    width = 1024
    stages = (
        ("Conv3d_1a_7x7",),
        ("Conv3d_2b_1x1", "Conv3d_2c_3x3"),
        ("Mixed_3b", "Mixed_3c"),
        ("Mixed_4b", "Mixed_4c", "Mixed_4d", "Mixed_4e", "Mixed_4f"),
        ("Mixed_5b", "Mixed_5c", "logits"),
    )

    def __init__(self, *, keep_time: bool, classes: int = 0) -> None:
        super().__init__()
        if classes < 0:
            raise StillmotionError(f"classes is {classes}; I3D needs 0, for no classifier, or more")
        time = 1 if keep_time else 2
        self.least_frames = time**3
        self.Conv3d_1a_7x7 = Unit(3, 64, kernel=(7, 7, 7), stride=(time, 2, 2))
        self.pool2 = SamePool3d((1, 3, 3), (1, 2, 2))
        self.Conv3d_2b_1x1 = Unit(64, 64)
        self.Conv3d_2c_3x3 = Unit(64, 192, kernel=(3, 3, 3))
        self.pool3 = SamePool3d((1, 3, 3), (1, 2, 2))
        self.Mixed_3b, self.Mixed_3c = _inceptions(192, MIXED_3)
        self.pool4 = SamePool3d((3, 3, 3), (time, 2, 2))
        blocks = _inceptions(MIXED_3[-1].total, MIXED_4)
        self.Mixed_4b, self.Mixed_4c, self.Mixed_4d, self.Mixed_4e, self.Mixed_4f = blocks
        self.pool5 = SamePool3d((time, 2, 2), (time, 2, 2))
        self.Mixed_5b, self.Mixed_5c = _inceptions(MIXED_4[-1].total, MIXED_5)
        if classes:
            self.logits = Classifier(self.width, classes)
        initialise_convolutions(self)

    def classify(self, clip: Tensor) -> Tensor:
        """Scores of the classes (B, classes) before softmax: of pairs of time steps, averaged, as published."""
        if not hasattr(self, "logits"):
            raise StillmotionError("this I3D has no classifier; create it with classes=400 to use the public one")
        pooled = self(clip)
        pairs = (pooled[:, :-1] + pooled[:, 1:]) / 2 if pooled.shape[1] > 1 else pooled
        return self.logits(pairs.mean(1))

    def _early(self, clip: Tensor) -> Tensor:
        h = self.pool2(self.Conv3d_1a_7x7(clip))
        h = self.pool3(self.Conv3d_2c_3x3(self.Conv3d_2b_1x1(h)))
        h = self.pool4(self.Mixed_3c(self.Mixed_3b(h)))
        for block in (self.Mixed_4b, self.Mixed_4c, self.Mixed_4d, self.Mixed_4e, self.Mixed_4f):
            h = block(h)
        return h

    def _last(self, h: Tensor) -> Tensor:
        return self.Mixed_5c(self.Mixed_5b(self.pool5(h)))


class Inception(nn.Module):
    """Four branches side by side: 1×1×1, two of 1×1×1 then 3×3×3, and a max pooling then 1×1×1."""

    def __init__(self, inner: int, widths: Widths) -> None:
        super().__init__()
        self.b0 = Unit(inner, widths.b0)
        self.b1a = Unit(inner, widths.b1_middle)
        self.b1b = Unit(widths.b1_middle, widths.b1, kernel=(3, 3, 3))
        self.b2a = Unit(inner, widths.b2_middle)
        self.b2b = Unit(widths.b2_middle, widths.b2, kernel=(3, 3, 3))
        self.b3a = SamePool3d((3, 3, 3), (1, 1, 1))
        self.b3b = Unit(inner, widths.b3)

    def forward(self, x: Tensor) -> Tensor:
        branches = (self.b0(x), self.b1b(self.b1a(x)), self.b2b(self.b2a(x)), self.b3b(self.b3a(x)))
        return torch.cat(branches, 1)


class Unit(nn.Module):
    """A convolution, batch norm and ReLU."""

    def __init__(self, inner: int, outer: int, *, kernel: Triple = (1, 1, 1), stride: Triple = (1, 1, 1)) -> None:
        super().__init__()
        self.conv3d = SameConv3d(inner, outer, kernel, stride=stride, bias=False)
        self.bn = nn.BatchNorm3d(outer, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv3d(x)), inplace=True)


class Classifier(nn.Module):
    """A linear layer in the guise of a convolution, which is how public weights have it."""

    def __init__(self, inner: int, classes: int) -> None:
        super().__init__()
        self.conv3d = nn.Conv3d(inner, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.conv3d.weight.flatten(1), self.conv3d.bias)


class SameConv3d(Conv3d):
    """A convolution padded so that its output has ⌈size / stride⌉ places."""

    def forward(self, x: Tensor) -> Tensor:
        kernel = (1 if self.strict else self.kernel_size[0], *self.kernel_size[1:])
        return super().forward(_padded(x, kernel, self.stride, border=self.border))


class SamePool3d(nn.Module):
    """Max pooling padded likewise, not over time when strict; it follows ReLUs, so that zeros are least."""

    strict: bool = False

    def __init__(self, kernel: Triple, stride: Triple) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel, self.stride
        if self.strict:
            kernel, stride = (1, *kernel[1:]), (1, *stride[1:])
        return F.max_pool3d(_padded(x, kernel, stride), kernel, stride)


def i3d(*, keep_time: bool = True, classes: int = 0) -> Backbone:
    """I3D on RGB; `classes` adds the classifier."""
    return I3D(keep_time=keep_time, classes=classes)


def _inceptions(inner: int, blocks: tuple[Widths, ...]) -> list[Inception]:
    inputs = (inner, *(widths.total for widths in blocks[:-1]))
    return [Inception(width, widths) for width, widths in zip(inputs, blocks, strict=True)]


def _padded(x: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], *, border: Border = "zeros") -> Tensor:
    """TensorFlow's "same": zeros on both sides, one more at the end where they are odd; in time the chosen border."""
    time, height, width = (_around(*of) for of in zip(x.shape[2:], kernel, stride, strict=True))
    if border == "replicate":
        x, time = replicated(x, *time), (0, 0)
    pads = (*width, *height, *time)
    return F.pad(x, pads) if any(pads) else x


def _around(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """How many places are added before and after `size` of them."""
    total = max(kernel - (size % stride or stride), 0)
    return total // 2, total - total // 2
