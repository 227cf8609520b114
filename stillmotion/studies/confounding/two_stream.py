"""The two-stream network of the confounding study and what it is shown (BOD-VCL, §5.5).

The static stream (θ_A) sees the first frame of a clip, the dynamic stream (θ_M) the optical flow between its frames.
Flow cannot see a uniform change of light, so the dynamic stream is also given temporal differences.

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
_FLOW_SCALE, _BRIGHTNESS_SCALE, _MAX_MOTION = (
    1.7,
    0.02,
    5.0,
)  # what counts as one, in pixels and in units of light, and what is cut off


class TwoStreamClips(NamedTuple):
    """One clip of each video, as the two streams see it.

    frames: (N, 3, S, S), the first frame; motion: (N, 3 (T-1), S/2, S/2), flow along x, flow along y and change of
    light between consecutive frames. labels: by semantic (N,).
    """

    frames: Tensor
    motion: Tensor
    labels: dict[str, np.ndarray]


class TwoStreamNetwork(nn.Module):
    """Two convolutional networks that are alike but for their input; the video's embedding is their sum (Eq. 9)."""

    def __init__(self, num_frames: int, *, width: int = 16, embedding_dim: int = 64) -> None:
        super().__init__()
        self.static = _stream(3, width, embedding_dim)
        self.dynamic = _stream(3 * (num_frames - 1), width, embedding_dim)

    def forward(self, frames: Tensor, motion: Tensor) -> tuple[Tensor, Tensor]:
        """g_A and g_M (N, M)."""
        return self.static(frames), self.dynamic(motion)


def _stream(in_channels: int, width: int, embedding_dim: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for out in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(in_channels, out, 3, 2, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        in_channels = out
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_channels, embedding_dim)]
    # Without it a stream may collapse to its easiest semantic, and stay there for hundreds of steps.
    layers.append(nn.BatchNorm1d(embedding_dim, affine=False))
    # Channels last is what makes small convolutions quick on a CPU.
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def motion_channels(pixels: np.ndarray) -> np.ndarray:
    """What moves in uint8 frames (T, S, S, 3): (3 (T-1), S, S), flow along x and y in pixels, and change of light."""
    if len(pixels) < 2:
        raise StillmotionError(f"a clip of {len(pixels)} frames has no motion; the dynamic stream needs at least 2")
    flow = np.stack(list(DISFlow("dis-ultrafast")(pixels)))
    light = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in pixels]).astype(np.float32) / 255
    change = np.diff(light, axis=0)
    return np.concatenate([flow[..., 0], flow[..., 1], change])


def sample_clips(dataset: SyntheticDataset, *, num_frames: int, seed: int) -> TwoStreamClips:
    """A window of so many consecutive frames of each video, its start drawn by `seed`; flow is computed here, once."""
    length = dataset.config.num_frames
    if num_frames > length:
        raise StillmotionError(f"clips of {num_frames} frames asked of videos of {length}; lower --num-frames")
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
