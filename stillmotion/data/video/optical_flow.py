"""Optical flow of a video, frame by frame: OpenCV's DIS, or RAFT from a local checkpoint.

Kroeger et al., "Fast Optical Flow using Dense Inverse Search", ECCV 2016 (arXiv:1603.03590).
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import cv2
import numpy as np

from stillmotion.errors import StillmotionError, VideoError

FlowName = Literal["dis-ultrafast", "dis-fast", "dis-medium", "raft-small", "raft-large"]
FLOW_NAMES: tuple[FlowName, ...] = get_args(FlowName)
_PRESETS = {
    "dis-ultrafast": cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST,
    "dis-fast": cv2.DISOPTICAL_FLOW_PRESET_FAST,
    "dis-medium": cv2.DISOPTICAL_FLOW_PRESET_MEDIUM,
}
# Below its patches' size at the finest scale, DIS reads outside the image and may end the process.
_DIS_MIN_SIZE = 32


class OpticalFlow(Protocol):
    """Estimates the motion between each two consecutive frames."""

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """From RGB frames (H, W, 3), one fewer fields (H, W, 2) of float32.

        A field says how far each pixel of a frame has moved in the next, in pixels, x before y.
        """
        ...


def load_flow(name: str, *, weights: str | Path | None = None, device: str = "cpu") -> OpticalFlow:
    """The flow of a name in `FLOWS`.

    weights: RAFT's checkpoint, with torchvision's parameter names. device: RAFT's.
    """
    if name in _PRESETS:
        if weights is not None:
            raise StillmotionError(f"{name} takes no weights; choose raft-large or raft-small, or leave them out")
        return DISFlow(name)
    if name not in FLOW_NAMES:
        raise StillmotionError(f"flow is {name!r}; choose one of {', '.join(FLOW_NAMES)}")
    if weights is None:
        raise StillmotionError(f"{name} needs the file of its weights; give one (--flow-weights), or choose dis-medium")
    from stillmotion.models.raft import load_raft_flow  # seconds to import, which DIS need not wait for

    return load_raft_flow(name, str(weights), device)


class DISFlow:
    """OpenCV's dense inverse search, on grey frames."""

    def __init__(self, name: str = "dis-medium") -> None:
        self._search: Any = cv2.DISOpticalFlow.create(_PRESETS[name])

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for first, second in pairwise(_to_gray(frame) for frame in frames):
            yield self._search.calc(first, second, None)


def _to_gray(frame: np.ndarray) -> np.ndarray:
    if min(frame.shape[:2]) < _DIS_MIN_SIZE:
        height, width = frame.shape[:2]
        raise VideoError(f"frames are {width}×{height}; optical flow by DIS needs at least {_DIS_MIN_SIZE} a side")
    return cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
