"""The layers in which a network looks across time, each of which can be told not to.

"Strict" is the ablation of BOD-VCL, Table 10: of every temporal kernel only the centre slice is used, and
temporal pooling has kernel and stride 1, so that a 3D network is applied frame by frame. The switch acts
inside `forward` and leaves parameters alone: it works under `torch.func.functional_call`, and the gradient
of the unused slices is zero.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@contextmanager
def strict_time(module: nn.Module) -> Iterator[None]:
    """Within the context, no layer of `module` lets a frame see another.

    Batch norm in training mode still takes its statistics over all frames, as it does over all clips.
    """
    with _set(module, "strict"):
        yield


@contextmanager
def second_order(module: nn.Module) -> Iterator[None]:
    """Within the context, the graphs that `module` records can be differentiated twice.

    Convolutional networks always can; attention leaves its fused kernels, which have no second derivative.
    """
    with _set(module, "second_order"):
        yield


@contextmanager
def _set(module: nn.Module, flag: str) -> Iterator[None]:
    before = [(part, getattr(part, flag)) for part in module.modules() if hasattr(type(part), flag)]
    for part, _ in before:
        setattr(part, flag, True)
    try:
        yield
    finally:
        for part, value in before:
            setattr(part, flag, value)


class Conv3d(nn.Conv3d):
    """A 3D convolution that uses only the centre slice of its kernel when strict."""

    strict: bool = False

    def forward(self, x: Tensor) -> Tensor:
        if not self.strict or self.kernel_size[0] == 1:
            return super().forward(x)
        centre = self.weight[:, :, self.kernel_size[0] // 2].unsqueeze(2)
        assert not isinstance(self.padding, str)
        padding = (0, *self.padding[1:])
        return F.conv3d(x, centre, self.bias, self.stride, padding, self.dilation, self.groups)


class MaxPool3d(nn.Module):
    """Max pooling over (time, height, width), over height and width alone when strict."""

    strict: bool = False

    def __init__(
        self,
        kernel: tuple[int, int, int],
        *,
        stride: tuple[int, int, int],
        padding: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        super().__init__()
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        if not self.strict:
            return F.max_pool3d(x, self.kernel, self.stride, self.padding)
        return F.max_pool3d(x, (1, *self.kernel[1:]), (1, *self.stride[1:]), (0, *self.padding[1:]))


class FeatureGate(nn.Module):
    """Channels scaled by a sigmoid of their mean over space and time (S3D-G); per frame when strict."""

    strict: bool = False

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((3, 4), keepdim=True) if self.strict else x.mean((2, 3, 4), keepdim=True)
        gate = torch.sigmoid(self.fc(mean.movedim(1, -1))).movedim(-1, 1)
        return x * gate


def initialise_convolutions(module: nn.Module) -> None:
    """Give every convolution He et al.'s normal weights (fan out) and a zero bias."""
    for part in module.modules():
        if isinstance(part, nn.Conv3d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
