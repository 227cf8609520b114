"""Optical flow of a video, frame by frame: OpenCV's DIS, or RAFT from a local checkpoint.

Kroeger et al., "Fast Optical Flow using Dense Inverse Search", ECCV 2016 (arXiv:1603.03590).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import cv2
import numpy as np
import torch
from torch.nn import functional as F

from stillmotion.errors import StillmotionError, VideoError
from stillmotion.nn.raft import LEAST_SIZE, RAFT, STRIDE, raft_large, raft_small
from stillmotion.nn.weights import load_weights

FlowName = Literal["dis-ultrafast", "dis-fast", "dis-medium", "raft-small", "raft-large"]
FLOWS: tuple[FlowName, ...] = get_args(FlowName)
_PRESETS = {
    "dis-ultrafast": cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST,
    "dis-fast": cv2.DISOPTICAL_FLOW_PRESET_FAST,
    "dis-medium": cv2.DISOPTICAL_FLOW_PRESET_MEDIUM,
}
_NETWORKS: dict[str, Callable[[], RAFT]] = {"raft-small": raft_small, "raft-large": raft_large}
# Below its patches' size at the finest scale, DIS reads outside the image and may end the process.
_LEAST_FOR_DIS = 32
_BATCH = 8


class Flow(Protocol):
    """Estimates the motion between each two consecutive frames."""

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """From RGB frames (H, W, 3), one fewer fields (H, W, 2) of float32.

        A field says how far each pixel of a frame has moved in the next, in pixels, x before y.
        """
        ...


def open_flow(name: str, *, weights: str | Path | None = None, device: str = "cpu") -> Flow:
    """The flow of a name in `FLOWS`.

    weights: RAFT's checkpoint, with torchvision's parameter names. device: RAFT's.
    """
    if name in _PRESETS:
        if weights is not None:
            raise StillmotionError(f"{name} takes no weights; choose raft-large or raft-small, or leave them out")
        return DIS(name)
    if name not in _NETWORKS:
        raise StillmotionError(f"flow is {name!r}; choose one of {', '.join(FLOWS)}")
    if weights is None:
        raise StillmotionError(f"{name} needs the file of its weights; give one (--flow-weights), or choose dis-medium")
    return _open_raft(name, str(weights), device)


class DIS:
    """OpenCV's dense inverse search, on grey frames."""

    def __init__(self, name: str = "dis-medium") -> None:
        self._search: Any = cv2.DISOpticalFlow.create(_PRESETS[name])

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for first, second in pairwise(_grey(frame) for frame in frames):
            yield self._search.calc(first, second, None)


class RAFTFlow:
    """RAFT on a few frames at a time, padded to a size it takes."""

    def __init__(self, network: RAFT, *, device: str = "cpu") -> None:
        self._network, self._device = network.eval().to(device), device

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        waiting: list[np.ndarray] = []
        for frame in frames:
            waiting.append(frame)
            if len(waiting) > _BATCH:
                yield from self._fields(np.stack(waiting))
                waiting = waiting[-1:]
        if len(waiting) > 1:
            yield from self._fields(np.stack(waiting))

    @torch.inference_mode()
    def _fields(self, frames: np.ndarray) -> np.ndarray:
        height, width = frames.shape[1:3]
        images = torch.from_numpy(frames).to(self._device).permute(0, 3, 1, 2).float() / 127.5 - 1
        (top, bottom), (left, right) = _padding(height), _padding(width)
        images = F.pad(images, (left, right, top, bottom), mode="replicate")
        flow = self._network.consecutive(images)[..., top : top + height, left : left + width]
        return flow.permute(0, 2, 3, 1).cpu().contiguous().numpy()


@lru_cache(maxsize=2)  # a worker makes many videos
def _open_raft(name: str, weights: str, device: str) -> RAFTFlow:
    network = _NETWORKS[name]()
    load_weights(network, weights)
    return RAFTFlow(network, device=device)


def _padding(size: int) -> tuple[int, int]:
    whole = max(LEAST_SIZE, -(-size // STRIDE) * STRIDE)
    before = (whole - size) // 2
    return before, whole - size - before


def _grey(frame: np.ndarray) -> np.ndarray:
    if min(frame.shape[:2]) < _LEAST_FOR_DIS:
        height, width = frame.shape[:2]
        raise VideoError(f"frames are {width}×{height}; optical flow by DIS needs at least {_LEAST_FOR_DIS} a side")
    return cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
