"""Optical flow by RAFT, from a local checkpoint."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch.nn import functional as F

from stillmotion.nn.raft import LEAST_SIZE, RAFT, STRIDE, raft_large, raft_small
from stillmotion.nn.weights import load_weights

_NETWORKS: dict[str, Callable[[], RAFT]] = {"raft-small": raft_small, "raft-large": raft_large}
_BATCH, _ROOM = 8, 2**30  # pairs of frames at a time, and bytes that all products of their places may take


class RAFTFlow:
    """RAFT on a few frames at a time, fewer if they are large, padded to a size it takes."""

    def __init__(self, network: RAFT, *, device: str = "cpu") -> None:
        self._network, self._device = network.eval().to(device), device

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        waiting: list[np.ndarray] = []
        for frame in frames:
            waiting.append(frame)
            if len(waiting) > _at_once(*frame.shape[:2]):
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
def open_raft(name: str, weights: str, device: str) -> RAFTFlow:
    """RAFT of this name, with the weights of a file."""
    network = _NETWORKS[name]()
    load_weights(network, weights)
    return RAFTFlow(network, device=device)


def _at_once(height: int, width: int) -> int:
    """How many pairs of frames: at most `_BATCH`, of which 8 of 480 × 640 take `_ROOM`; one at least."""
    places = _whole(height) * _whole(width) // STRIDE**2
    return max(1, min(_BATCH, _ROOM // (places**2 * 4 * 4 // 3)))  # float32, on coarser levels a third once more


def _whole(size: int) -> int:
    return max(LEAST_SIZE, -(-size // STRIDE) * STRIDE)


def _padding(size: int) -> tuple[int, int]:
    whole = _whole(size)
    before = (whole - size) // 2
    return before, whole - size - before
