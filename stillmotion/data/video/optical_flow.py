"""Optical flow between consecutive frames: OpenCV DIS, or RAFT by name.

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
# For smaller frames, DIS reads outside the image and may crash.
_DIS_MIN_SIZE = 32


class OpticalFlow(Protocol):
    """Estimator of the motion between consecutive frames."""

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the flow from each frame to the next.

        Args:
            frames: RGB frames, uint8 (H, W, 3).

        Yields:
            Displacements (x, y) in pixels, float32 (H, W, 2); one field fewer than frames.
        """
        ...


def load_flow(name: str, *, weights: str | Path | None = None, device: str = "cpu") -> OpticalFlow:
    """Load an optical flow estimator.

    Args:
        name: One of `FLOW_NAMES`.
        weights: Checkpoint of RAFT, with torchvision's parameter names.
        device: Device of RAFT.

    Raises:
        StillmotionError: If the name is unknown, or weights are missing or not supported.
    """
    if name in _PRESETS:
        if weights is not None:
            raise StillmotionError(f"{name} takes no weights. Omit them, or use raft-large or raft-small.")
        return DISFlow(name)
    if name not in FLOW_NAMES:
        raise StillmotionError(f"flow is {name!r}; must be one of {', '.join(FLOW_NAMES)}")
    if weights is None:
        raise StillmotionError(f"{name} needs weights. Give a checkpoint by --flow-weights, or use --flow dis-medium.")
    from stillmotion.models.raft import load_raft_flow  # slow to import, not needed for DIS

    return load_raft_flow(name, str(weights), device)


class DISFlow:
    """Dense inverse search (OpenCV) on gray frames; RGB ones are converted.

    Args:
        name: Preset, such as dis-medium.
        finest_scale: Level of the image pyramid at which the search ends; 0 is the whole resolution, None the preset's.
    """

    def __init__(self, name: str = "dis-medium", *, finest_scale: int | None = None) -> None:
        self._search: Any = cv2.DISOpticalFlow.create(_PRESETS[name])
        if finest_scale is not None:
            self._search.setFinestScale(finest_scale)

    def __call__(self, frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for first, second in pairwise(_to_gray(frame) for frame in frames):
            yield self._search.calc(first, second, None)


def _to_gray(frame: np.ndarray) -> np.ndarray:
    if min(frame.shape[:2]) < _DIS_MIN_SIZE:
        height, width = frame.shape[:2]
        raise VideoError(f"frames are {width}×{height}; DIS optical flow needs at least {_DIS_MIN_SIZE} per side")
    return frame if frame.ndim == 2 else cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
