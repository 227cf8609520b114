"""The two-stream network of the confounding study and its input (BOD-VCL, §5.5).

The static stream (θ_A) gets the first frame of a clip, the dynamic stream (θ_M) the optical flow between its frames.
Flow does not contain uniform brightness changes, so the dynamic stream also gets temporal differences.

Shapes: N clips, T frames, S pixels a side, M channels of the embedding.
"""

from typing import NamedTuple

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stillmotion.data.synthetic.factors import SyntheticDataset
from stillmotion.data.video.optical_flow import DISFlow
from stillmotion.errors import StillmotionError

_MEAN, _STD = 0.45, 0.225
_FLOW_SCALE, _BRIGHTNESS_SCALE = 1.7, 0.02  # divisors, in pixels and in units of brightness
_MAX_MOTION = 5.0  # larger values are clamped


class TwoStreamClips(NamedTuple):
    """Input of the two streams: one clip of each video.

    Attributes:
        frames: First frames (N, 3, S, S).
        motion: Flow along x, flow along y and brightness change between frames (N, 3 (T-1), S/2, S/2).
        labels: Labels (N,) by factor.
    """

    frames: Tensor
    motion: Tensor
    labels: dict[str, np.ndarray]


class TwoStreamNetwork(nn.Module):
    """Two equal convolutional networks with different inputs; the embedding is their sum (Eq. 9).

    Args:
        num_frames: Frames per clip.
        width: Channels of the first layer.
        embedding_dim: Channels of the embedding.
    """

    def __init__(self, num_frames: int, *, width: int = 16, embedding_dim: int = 64) -> None:
        super().__init__()
        self.static = _stream(3, width, embedding_dim)
        self.dynamic = _stream(3 * (num_frames - 1), width, embedding_dim)

    def forward(self, frames: Tensor, motion: Tensor) -> tuple[Tensor, Tensor]:
        """Return g_A and g_M (N, M)."""
        return self.static(frames), self.dynamic(motion)


def _stream(in_channels: int, width: int, embedding_dim: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(in_channels, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        in_channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_channels, embedding_dim)]
    # Without it a stream may collapse to its easiest factor for hundreds of steps.
    layers.append(nn.BatchNorm1d(embedding_dim, affine=False))
    # Channels last is faster for small convolutions on a CPU.
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def motion_channels(pixels: np.ndarray) -> np.ndarray:
    """Compute flow along x and y in pixels, and brightness changes.

    Args:
        pixels: Frames uint8 (T, S, S, 3).

    Returns:
        Maps (3 (T-1), S, S).
    """
    if len(pixels) < 2:
        raise StillmotionError(f"a clip of {len(pixels)} frames has no motion; the dynamic stream needs at least 2")
    flow = np.stack(list(DISFlow("dis-ultrafast")(pixels)))
    brightness = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in pixels]).astype(np.float32) / 255
    change = np.diff(brightness, axis=0)
    return np.concatenate([flow[..., 0], flow[..., 1], change])


def sample_clips(dataset: SyntheticDataset, *, num_frames: int, seed: int) -> TwoStreamClips:
    """Sample a window of consecutive frames of each video, and compute its flow.

    Args:
        dataset: Videos.
        num_frames: Frames per window.
        seed: Seed of the windows.
    """
    length = dataset.config.num_frames
    if num_frames > length:
        raise StillmotionError(f"num_frames is {num_frames}, but videos have {length} frames; lower --num-frames")
    rng = np.random.default_rng((seed, 3))
    first, motion = [], []
    for i in range(len(dataset)):
        start = int(rng.integers(length - num_frames + 1))
        pixels = dataset.open_video(i).get_frames(range(start, start + num_frames))
        maps = torch.from_numpy(motion_channels(pixels))
        maps[: 2 * (num_frames - 1)] /= _FLOW_SCALE
        maps[2 * (num_frames - 1) :] /= _BRIGHTNESS_SCALE
        motion.append(F.avg_pool2d(maps.clamp(-_MAX_MOTION, _MAX_MOTION), 2))
        first.append(torch.from_numpy(pixels[0]).permute(2, 0, 1) / 255)
    static = ((torch.stack(first) - _MEAN) / _STD).contiguous(memory_format=torch.channels_last)
    return TwoStreamClips(
        static, torch.stack(motion).contiguous(memory_format=torch.channels_last), dict(dataset.labels)
    )
