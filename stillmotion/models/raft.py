"""RAFT optical flow with torchvision's parameter names, and RAFT over the frames of a video.

Teed & Deng, "RAFT: Recurrent All-Pairs Field Transforms for Optical Flow", ECCV 2020 (arXiv:2003.12039).
Parameter names and the order of correlation channels are torchvision's, so that its weights load. Differences: only the
last flow is upsampled and returned; each frame of a video is encoded once.

Shapes: images (B, 3, H, W) in [-1, 1], H and W multiples of 8; flow (B, 2, H, W), in pixels, x before y.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stillmotion.errors import StillmotionError
from stillmotion.models.pretrained.weight_loading import load_weights

RAFT_STRIDE = 8
NUM_LEVELS = 4
# The coarsest level of the pyramid has two cells per side, as in training.
RAFT_MIN_SIZE = RAFT_STRIDE * 2**NUM_LEVELS


def _conv_norm_relu(
    in_channels: int, out_channels: int, kernel_size: int, *, stride: int = 1, norm: type[nn.Module] | None = None
) -> nn.Sequential:
    """Convolution, norm and ReLU."""
    layers: list[nn.Module] = [
        nn.Conv2d(in_channels, out_channels, kernel_size, stride=stride, padding=kernel_size // 2)
    ]
    if norm is not None:
        layers.append(norm(out_channels))
    return nn.Sequential(*layers, nn.ReLU())


class _Block(nn.Module):
    """Residual block of two 3×3 convolutions, or of 1×1, 3×3 and 1×1 as a bottleneck."""

    def __init__(
        self, in_channels: int, out_channels: int, *, stride: int, norm: type[nn.Module] | None, bottleneck: bool
    ) -> None:
        super().__init__()
        if bottleneck:
            self.convnormrelu1 = _conv_norm_relu(in_channels, out_channels // 4, 1, norm=norm)
            self.convnormrelu2 = _conv_norm_relu(out_channels // 4, out_channels // 4, 3, stride=stride, norm=norm)
            self.convnormrelu3 = _conv_norm_relu(out_channels // 4, out_channels, 1, norm=norm)
        else:
            self.convnormrelu1 = _conv_norm_relu(in_channels, out_channels, 3, stride=stride, norm=norm)
            self.convnormrelu2 = _conv_norm_relu(out_channels, out_channels, 3, norm=norm)
            self.convnormrelu3 = nn.Sequential()
        self.downsample = (
            nn.Sequential()
            if stride == 1
            else _conv_norm_relu(in_channels, out_channels, 1, stride=stride, norm=norm)[:-1]
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.convnormrelu3(self.convnormrelu2(self.convnormrelu1(x)))
        return F.relu(self.downsample(x) + y)


class _Encoder(nn.Module):
    """Image to a feature map of an eighth of its size."""

    def __init__(self, channels: tuple[int, ...], *, norm: type[nn.Module] | None, bottleneck: bool) -> None:
        super().__init__()
        self.convnormrelu = _conv_norm_relu(3, channels[0], 7, stride=2, norm=norm)

        def stage(inner: int, outer: int, stride: int) -> nn.Sequential:
            first = _Block(inner, outer, stride=stride, norm=norm, bottleneck=bottleneck)
            return nn.Sequential(first, _Block(outer, outer, stride=1, norm=norm, bottleneck=bottleneck))

        self.layer1 = stage(channels[0], channels[1], 1)
        self.layer2 = stage(channels[1], channels[2], 2)
        self.layer3 = stage(channels[2], channels[3], 2)
        self.conv = nn.Conv2d(channels[3], channels[4], 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, image: Tensor) -> Tensor:
        return self.conv(self.layer3(self.layer2(self.layer1(self.convnormrelu(image)))))


class _MotionEncoder(nn.Module):
    """Features of the current flow and of the correlations around it, followed by the flow itself."""

    def __init__(
        self, corr_channels: int, channels: tuple[int, ...], flow_channels: tuple[int, int], out_channels: int
    ) -> None:
        super().__init__()
        self.convcorr1 = _conv_norm_relu(corr_channels, channels[0], 1)
        self.convcorr2 = _conv_norm_relu(channels[0], channels[1], 3) if len(channels) > 1 else nn.Sequential()
        self.convflow1 = _conv_norm_relu(2, flow_channels[0], 7)
        self.convflow2 = _conv_norm_relu(flow_channels[0], flow_channels[1], 3)
        self.conv = _conv_norm_relu(channels[-1] + flow_channels[1], out_channels - 2, 3)

    def forward(self, flow: Tensor, correlations: Tensor) -> Tensor:
        correlation_features = self.convcorr2(self.convcorr1(correlations))
        both = torch.cat([correlation_features, self.convflow2(self.convflow1(flow))], 1)
        return torch.cat([self.conv(both), flow], 1)


class _ConvGRU(nn.Module):
    def __init__(self, hidden_dim: int, in_channels: int, kernel_size: tuple[int, int]) -> None:
        super().__init__()
        padding = (kernel_size[0] // 2, kernel_size[1] // 2)
        self.convz = nn.Conv2d(hidden_dim + in_channels, hidden_dim, kernel_size, padding=padding)
        self.convr = nn.Conv2d(hidden_dim + in_channels, hidden_dim, kernel_size, padding=padding)
        self.convq = nn.Conv2d(hidden_dim + in_channels, hidden_dim, kernel_size, padding=padding)

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        both = torch.cat([h, x], 1)
        update, reset = torch.sigmoid(self.convz(both)), torch.sigmoid(self.convr(both))
        candidate = torch.tanh(self.convq(torch.cat([reset * h, x], 1)))
        return torch.lerp(h, candidate, update)


class _FlowHead(nn.Module):
    def __init__(self, in_channels: int, hidden_dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, hidden_dim, 3, padding=1)
        self.conv2 = nn.Conv2d(hidden_dim, 2, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv2(F.relu(self.conv1(h)))


class _UpdateBlock(nn.Module):
    """One update: a new hidden state, and the change of the flow."""

    def __init__(self, config: "_RAFTConfig") -> None:
        super().__init__()
        correlations = NUM_LEVELS * (2 * config.radius + 1) ** 2
        self.motion_encoder = _MotionEncoder(correlations, config.correlation, config.flow, config.motion)
        inner = config.context[-1] - config.hidden + config.motion
        grus = {f"convgru{i}": _ConvGRU(config.hidden, inner, kernel) for i, kernel in enumerate(config.kernels, 1)}
        self.recurrent_block = nn.ModuleDict(grus)
        self.flow_head = _FlowHead(config.hidden, config.head)

    def forward(self, h: Tensor, context: Tensor, correlations: Tensor, flow: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat([context, self.motion_encoder(flow, correlations)], 1)
        for gru in self.recurrent_block.values():
            h = gru(h, x)
        return h, self.flow_head(h)


class _MaskPredictor(nn.Module):
    """Weights of the nine coarse pixels around each fine pixel."""

    def __init__(self, in_channels: int, hidden_dim: int) -> None:
        super().__init__()
        self.convrelu = _conv_norm_relu(in_channels, hidden_dim, 3)
        self.conv = nn.Conv2d(hidden_dim, 9 * RAFT_STRIDE**2, 1)

    def forward(self, h: Tensor) -> Tensor:
        return 0.25 * self.conv(self.convrelu(h))


@dataclass(frozen=True, kw_only=True)
class _RAFTConfig:
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


_CONFIGS = {
    "raft-small": _RAFTConfig(
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
    ),
    "raft-large": _RAFTConfig(
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
    ),
}


class RAFT(nn.Module):
    """Optical flow between consecutive frames.

    Args:
        name: "raft-large", the network of the paper with 5.3 M parameters, or "raft-small" with 1.0 M, whose flow is
            upsampled by interpolation.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        config = _CONFIGS[name]
        self.radius, self.hidden = config.radius, config.hidden
        self.feature_encoder = _Encoder(config.features, norm=nn.InstanceNorm2d, bottleneck=config.bottleneck)
        self.context_encoder = _Encoder(config.context, norm=config.context_norm, bottleneck=config.bottleneck)
        self.update_block = _UpdateBlock(config)
        self.mask_predictor = None if config.mask is None else _MaskPredictor(config.hidden, config.mask)

    def forward(self, frames: Tensor, *, num_flow_updates: int = 12) -> Tensor:
        """Compute the flow from each frame to the next.

        Args:
            frames: Frames, (T, 3, H, W).
            num_flow_updates: Number of updates.

        Returns:
            Flow, (T-1, 2, H, W).

        Raises:
            StillmotionError: If the size is not supported.
        """
        maps = self.feature_encoder(_check_size(frames))
        pyramid = correlation_pyramid(maps[:-1], maps[1:])
        state = self.context_encoder(frames[:-1])
        h, context = torch.tanh(state[:, : self.hidden]), F.relu(state[:, self.hidden :])
        b, (height, width) = len(state), maps.shape[-2:]
        down, across = torch.meshgrid(
            torch.arange(height, device=frames.device), torch.arange(width, device=frames.device), indexing="ij"
        )
        start = torch.stack([across, down]).to(maps.dtype)
        flow = start.new_zeros(b, 2, height, width)
        for _ in range(num_flow_updates):
            flow = flow.detach()
            h, change = self.update_block(
                h, context, lookup_correlation(pyramid, start + flow, radius=self.radius), flow
            )
            flow = flow + change
        if self.mask_predictor is None:
            return RAFT_STRIDE * F.interpolate(flow, scale_factor=RAFT_STRIDE, mode="bilinear", align_corners=True)
        return convex_upsample(flow, self.mask_predictor(h))


def correlation_pyramid(first: Tensor, second: Tensor) -> list[Tensor]:
    """Correlate all pairs of pixels of two feature maps, pooled over the second map.

    Args:
        first: Feature map, (B, C, H, W).
        second: Feature map, (B, C, H, W).

    Returns:
        Correlations at each level l, (B·H·W, 1, H/2^l, W/2^l).
    """
    b, c, height, width = first.shape
    pairs = first.flatten(2).transpose(1, 2) @ second.flatten(2) / c**0.5
    levels = [pairs.reshape(b * height * width, 1, height, width)]
    for _ in range(NUM_LEVELS - 1):
        levels.append(F.avg_pool2d(levels[-1], 2))
    return levels


def lookup_correlation(pyramid: list[Tensor], centers: Tensor, *, radius: int) -> Tensor:
    """Look up the correlations in a square around each center, at every level.

    Args:
        pyramid: Correlations of `correlation_pyramid`.
        centers: Centers, (B, 2, H, W).
        radius: Radius of the square.

    Returns:
        Correlations, (B, levels·side², H, W).
    """
    b, _, height, width = centers.shape
    span = torch.arange(-radius, radius + 1, device=centers.device, dtype=centers.dtype)
    # torchvision's order of channels: the x of the square changes slowest.
    square = torch.stack(torch.meshgrid(span, span, indexing="ij"), -1)
    points = centers.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2)
    levels = []
    for level, volume in enumerate(pyramid):
        size = points.new_tensor([volume.shape[-1], volume.shape[-2]])
        grid = (2 * (points / 2**level + square) + 1) / size - 1
        levels.append(F.grid_sample(volume, grid, align_corners=False).reshape(b, height, width, -1))
    return torch.cat(levels, -1).permute(0, 3, 1, 2)


def convex_upsample(flow: Tensor, mask: Tensor) -> Tensor:
    """Upsample flow by eight; each pixel is a weighted mean of the nine coarse ones around it (appendix B).

    Args:
        flow: Flow, (B, 2, H, W).
        mask: Logits of the weights, (B, 9·8·8, H, W).

    Returns:
        Flow, (B, 2, 8·H, 8·W).
    """
    b, _, height, width = flow.shape
    weights = mask.reshape(b, 1, 9, RAFT_STRIDE, RAFT_STRIDE, height, width).softmax(2)
    neighbors = F.unfold(RAFT_STRIDE * flow, 3, padding=1).reshape(b, 2, 9, 1, 1, height, width)
    fine = (weights * neighbors).sum(2)
    return fine.permute(0, 1, 4, 2, 5, 3).reshape(b, 2, RAFT_STRIDE * height, RAFT_STRIDE * width)


def _check_size(images: Tensor) -> Tensor:
    height, width = images.shape[-2:]
    if height % RAFT_STRIDE or width % RAFT_STRIDE or min(height, width) < RAFT_MIN_SIZE:
        raise StillmotionError(
            f"Images are {width}×{height}; RAFT needs multiples of {RAFT_STRIDE}, at least {RAFT_MIN_SIZE}. Pad them."
        )
    return images


_BATCH_SIZE, _MAX_CORRELATION_BYTES = 8, 2**30  # largest number of frame pairs at a time, and of bytes for correlations


class RAFTFlow:
    """RAFT over the frames of a video: uint8 frames (H, W, 3) to flows (H, W, 2), in padded batches.

    Args:
        network: RAFT.
        device: Device to run it on.
    """

    def __init__(self, network: RAFT, *, device: str = "cpu") -> None:
        self._network, self._device = network.eval().to(device), device

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        pending: list[np.ndarray] = []
        for frame in frames:
            pending.append(frame)
            if len(pending) > _pairs_per_batch(*frame.shape[:2]):
                yield from self._compute_flows(np.stack(pending))
                pending = pending[-1:]
        if len(pending) > 1:
            yield from self._compute_flows(np.stack(pending))

    @torch.inference_mode()
    def _compute_flows(self, frames: np.ndarray) -> np.ndarray:
        height, width = frames.shape[1:3]
        images = torch.from_numpy(frames).to(self._device).permute(0, 3, 1, 2).float() / 127.5 - 1
        (top, bottom), (left, right) = _pad_amounts(height), _pad_amounts(width)
        images = F.pad(images, (left, right, top, bottom), mode="replicate")
        flow = self._network(images)[..., top : top + height, left : left + width]
        return flow.permute(0, 2, 3, 1).cpu().contiguous().numpy()


@lru_cache(maxsize=2)  # a worker process reads many videos
def load_raft_flow(name: str, weights: str, device: str) -> RAFTFlow:
    """Load RAFT with pretrained weights.

    Args:
        name: "raft-small" or "raft-large".
        weights: File of weights.
        device: Device to run it on.

    Returns:
        RAFT over the frames of a video.
    """
    network = RAFT(name)
    load_weights(network, weights)
    return RAFTFlow(network, device=device)


def _pairs_per_batch(height: int, width: int) -> int:
    """Frame pairs per batch: 1 to 8, so that the float32 correlations of all levels (4/3 of the first) fit."""
    num_cells = _padded_side(height) * _padded_side(width) // RAFT_STRIDE**2
    return max(1, min(_BATCH_SIZE, _MAX_CORRELATION_BYTES // (num_cells**2 * 4 * 4 // 3)))


def _padded_side(size: int) -> int:
    return max(RAFT_MIN_SIZE, -(-size // RAFT_STRIDE) * RAFT_STRIDE)


def _pad_amounts(size: int) -> tuple[int, int]:
    total = _padded_side(size) - size
    return total // 2, total - total // 2
