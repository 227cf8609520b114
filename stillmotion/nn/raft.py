"""RAFT, optical flow by a recurrent search in the correlations of all pairs of pixels.

Teed & Deng, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow", ECCV 2020 (arXiv:2003.12039).
Parameter names, and the order of correlation channels, are torchvision's, so that its weights load. What differs: only
the last flow is upsampled and returned; `consecutive` encodes each frame of a video once.

Shapes: images (B, 3, H, W) in [-1, 1], H and W multiples of 8; flow (B, 2, H, W), in pixels, x before y.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stillmotion.errors import StillmotionError

STRIDE = 8
LEVELS = 4
# The coarsest level of the pyramid keeps two cells a side, as in training.
LEAST_SIZE = STRIDE * 2**LEVELS


def _unit(
    inner: int, outer: int, kernel: int, *, stride: int = 1, norm: type[nn.Module] | None = None
) -> nn.Sequential:
    """Convolution, norm and ReLU."""
    layers: list[nn.Module] = [nn.Conv2d(inner, outer, kernel, stride=stride, padding=kernel // 2)]
    if norm is not None:
        layers.append(norm(outer))
    return nn.Sequential(*layers, nn.ReLU())


class _Block(nn.Module):
    """Two 3×3 convolutions, or as a bottleneck 1×1, 3×3, 1×1, beside a shortcut."""

    def __init__(self, inner: int, outer: int, *, stride: int, norm: type[nn.Module] | None, bottleneck: bool) -> None:
        super().__init__()
        if bottleneck:
            self.convnormrelu1 = _unit(inner, outer // 4, 1, norm=norm)
            self.convnormrelu2 = _unit(outer // 4, outer // 4, 3, stride=stride, norm=norm)
            self.convnormrelu3 = _unit(outer // 4, outer, 1, norm=norm)
        else:
            self.convnormrelu1 = _unit(inner, outer, 3, stride=stride, norm=norm)
            self.convnormrelu2 = _unit(outer, outer, 3, norm=norm)
            self.convnormrelu3 = nn.Sequential()
        self.downsample = nn.Sequential() if stride == 1 else _unit(inner, outer, 1, stride=stride, norm=norm)[:-1]

    def forward(self, x: Tensor) -> Tensor:
        y = self.convnormrelu3(self.convnormrelu2(self.convnormrelu1(x)))
        return F.relu(self.downsample(x) + y)


class _Encoder(nn.Module):
    """An image to a map of features at an eighth of its size."""

    def __init__(self, widths: tuple[int, ...], *, norm: type[nn.Module] | None, bottleneck: bool) -> None:
        super().__init__()
        self.convnormrelu = _unit(3, widths[0], 7, stride=2, norm=norm)

        def stage(inner: int, outer: int, stride: int) -> nn.Sequential:
            first = _Block(inner, outer, stride=stride, norm=norm, bottleneck=bottleneck)
            return nn.Sequential(first, _Block(outer, outer, stride=1, norm=norm, bottleneck=bottleneck))

        self.layer1 = stage(widths[0], widths[1], 1)
        self.layer2 = stage(widths[1], widths[2], 2)
        self.layer3 = stage(widths[2], widths[3], 2)
        self.conv = nn.Conv2d(widths[3], widths[4], 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        return self.conv(self.layer3(self.layer2(self.layer1(self.convnormrelu(image)))))


class _MotionEncoder(nn.Module):
    """The flow so far and the correlations about it, as features; the flow itself stands behind them."""

    def __init__(self, correlations: int, widths: tuple[int, ...], flow_widths: tuple[int, int], outer: int) -> None:
        super().__init__()
        self.convcorr1 = _unit(correlations, widths[0], 1)
        self.convcorr2 = _unit(widths[0], widths[1], 3) if len(widths) > 1 else nn.Sequential()
        self.convflow1 = _unit(2, flow_widths[0], 7)
        self.convflow2 = _unit(flow_widths[0], flow_widths[1], 3)
        self.conv = _unit(widths[-1] + flow_widths[1], outer - 2, 3)

    def forward(self, flow: Tensor, correlations: Tensor) -> Tensor:
        seen = self.convcorr2(self.convcorr1(correlations))
        both = torch.cat([seen, self.convflow2(self.convflow1(flow))], 1)
        return torch.cat([self.conv(both), flow], 1)


class _ConvGRU(nn.Module):
    def __init__(self, hidden: int, inner: int, kernel: tuple[int, int]) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2)
        self.convz = nn.Conv2d(hidden + inner, hidden, kernel, padding=padding)
        self.convr = nn.Conv2d(hidden + inner, hidden, kernel, padding=padding)
        self.convq = nn.Conv2d(hidden + inner, hidden, kernel, padding=padding)

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        both = torch.cat([h, x], 1)
        update, reset = torch.sigmoid(self.convz(both)), torch.sigmoid(self.convr(both))
        candidate = torch.tanh(self.convq(torch.cat([reset * h, x], 1)))
        return torch.lerp(h, candidate, update)


class _FlowHead(nn.Module):
    def __init__(self, inner: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, hidden, 3, padding=1)
        self.conv2 = nn.Conv2d(hidden, 2, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv2(F.relu(self.conv1(h)))


class _UpdateBlock(nn.Module):
    """One step of the search: a new hidden state, and how far the flow moves."""

    def __init__(self, size: "_Size") -> None:
        super().__init__()
        correlations = LEVELS * (2 * size.radius + 1) ** 2
        self.motion_encoder = _MotionEncoder(correlations, size.correlation, size.flow, size.motion)
        inner = size.context[-1] - size.hidden + size.motion
        grus = {f"convgru{i}": _ConvGRU(size.hidden, inner, kernel) for i, kernel in enumerate(size.kernels, 1)}
        self.recurrent_block = nn.ModuleDict(grus)
        self.flow_head = _FlowHead(size.hidden, size.head)

    def forward(self, h: Tensor, context: Tensor, correlations: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat([context, self.motion_encoder(flow, correlations)], 1)
        for gru in self.recurrent_block.values():
            h = gru(h, x)
        return h, self.flow_head(h)


class _MaskPredictor(nn.Module):
    """For each fine pixel, the weights of the nine coarse ones about it."""

    def __init__(self, inner: int, hidden: int) -> None:
        super().__init__()
        self.convrelu = _unit(inner, hidden, 3)
        self.conv = nn.Conv2d(hidden, 9 * STRIDE**2, 1)

    def forward(self, h: Tensor) -> Tensor:
        return 0.25 * self.conv(self.convrelu(h))


@dataclass(frozen=True, kw_only=True)
class _Size:
    features: tuple[int, ...]
    context: tuple[int, ...]
    context_norm: type[nn.Module] | None
    bottleneck: bool
    radius: int
    correlation: tuple[int, ...]
    flow: tuple[int, int]
    motion: int
    hidden: int
    kernels: tuple[tuple[int, int], ...]
    head: int
    mask: int | None


class RAFT(nn.Module):
    """Where each pixel of one image is in another; built by `raft_large` and `raft_small`."""

    def __init__(self, size: _Size) -> None:
        super().__init__()
        self.radius, self.hidden = size.radius, size.hidden
        self.feature_encoder = _Encoder(size.features, norm=nn.InstanceNorm2d, bottleneck=size.bottleneck)
        self.context_encoder = _Encoder(size.context, norm=size.context_norm, bottleneck=size.bottleneck)
        self.update_block = _UpdateBlock(size)
        self.mask_predictor = None if size.mask is None else _MaskPredictor(size.hidden, size.mask)

    def forward(self, first: Tensor, second: Tensor, *, updates: int = 12) -> Tensor:
        """The flow from `first` to `second`, after so many steps of the search."""
        first_map, second_map = self.feature_encoder(torch.cat([_checked(first), _checked(second)])).chunk(2)
        return self._search(first_map, second_map, first, updates)

    def consecutive(self, frames: Tensor, *, updates: int = 12) -> Tensor:
        """The flow from each frame of (T, 3, H, W) to the next: (T-1, 2, H, W)."""
        maps = self.feature_encoder(_checked(frames))
        return self._search(maps[:-1], maps[1:], frames[:-1], updates)

    def _search(self, first_map: Tensor, second_map: Tensor, first: Tensor, updates: int) -> Tensor:
        pyramid = correlation_pyramid(first_map, second_map)
        state = self.context_encoder(first)
        h, context = torch.tanh(state[:, : self.hidden]), F.relu(state[:, self.hidden :])
        b, _, height, width = first_map.shape
        down, across = torch.meshgrid(
            torch.arange(height, device=first.device), torch.arange(width, device=first.device), indexing="ij"
        )
        start = torch.stack([across, down]).to(first_map.dtype)
        flow = start.new_zeros(b, 2, height, width)
        for _ in range(updates):
            flow = flow.detach()
            h, change = self.update_block(h, context, look_up(pyramid, start + flow, radius=self.radius), flow)
            flow = flow + change
        if self.mask_predictor is None:
            return STRIDE * F.interpolate(flow, scale_factor=STRIDE, mode="bilinear", align_corners=True)
        return convex_upsample(flow, self.mask_predictor(h))


def correlation_pyramid(first: Tensor, second: Tensor) -> list[Tensor]:
    """Products of all pairs of features of two maps (B, C, H, W), pooled over the second: (B·H·W, 1, H/2^l, W/2^l)."""
    b, c, height, width = first.shape
    pairs = first.flatten(2).transpose(1, 2) @ second.flatten(2) / c**0.5
    levels = [pairs.reshape(b * height * width, 1, height, width)]
    for _ in range(LEVELS - 1):
        levels.append(F.avg_pool2d(levels[-1], 2))
    return levels


def look_up(pyramid: list[Tensor], centres: Tensor, *, radius: int) -> Tensor:
    """The correlations in a square about each centre (B, 2, H, W), at every level: (B, levels·side², H, W)."""
    b, _, height, width = centres.shape
    span = torch.arange(-radius, radius + 1, device=centres.device, dtype=centres.dtype)
    # torchvision's order of channels: the x of the square changes slowest.
    square = torch.stack(torch.meshgrid(span, span, indexing="ij"), -1)
    points = centres.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2)
    found = []
    for level, volume in enumerate(pyramid):
        size = points.new_tensor([volume.shape[-1], volume.shape[-2]])
        grid = (2 * (points / 2**level + square) + 1) / size - 1
        found.append(F.grid_sample(volume, grid, align_corners=False).reshape(b, height, width, -1))
    return torch.cat(found, -1).permute(0, 3, 1, 2)


def convex_upsample(flow: Tensor, mask: Tensor) -> Tensor:
    """Flow at eight times the size, each pixel a weighted mean of the nine coarse ones about it (appendix B).

    mask: (B, 9·8·8, H, W), the logarithms of the weights.
    """
    b, _, height, width = flow.shape
    weights = mask.reshape(b, 1, 9, STRIDE, STRIDE, height, width).softmax(2)
    about = F.unfold(STRIDE * flow, 3, padding=1).reshape(b, 2, 9, 1, 1, height, width)
    fine = (weights * about).sum(2)
    return fine.permute(0, 1, 4, 2, 5, 3).reshape(b, 2, STRIDE * height, STRIDE * width)


def raft_large() -> RAFT:
    """The paper's network: 5.3 M weights."""
    return RAFT(
        _Size(
            features=(64, 64, 96, 128, 256),
            context=(64, 64, 96, 128, 256),
            context_norm=nn.BatchNorm2d,
            bottleneck=False,
            radius=4,
            correlation=(256, 192),
            flow=(128, 64),
            motion=128,
            hidden=128,
            kernels=((1, 5), (5, 1)),
            head=256,
            mask=256,
        )
    )


def raft_small() -> RAFT:
    """The small one: 1.0 M weights, flow upsampled by interpolation."""
    return RAFT(
        _Size(
            features=(32, 32, 64, 96, 128),
            context=(32, 32, 64, 96, 160),
            context_norm=None,
            bottleneck=True,
            radius=3,
            correlation=(96,),
            flow=(64, 32),
            motion=82,
            hidden=96,
            kernels=((3, 3),),
            head=128,
            mask=None,
        )
    )


def _checked(images: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    if height % STRIDE or width % STRIDE or min(height, width) < LEAST_SIZE:
        raise StillmotionError(
            f"images are {width}×{height}; RAFT takes multiples of {STRIDE} from {LEAST_SIZE} on (pad them)"
        )
    return images
